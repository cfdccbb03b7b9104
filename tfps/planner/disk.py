"""Looks whether a checkpoint fits on the job_dir's disk, before a run spends hours for it."""

import shutil

from tfps import byte_size
from tfps.errors import UserError
from tfps.planner.memory import Placement
from tfps.store.layout import StoreLayout


def check_disk_space(layout: StoreLayout, job_dir: str, export_bytes: int = 0) -> None:
    """Refuses a local job_dir that has no room for one more checkpoint and the exported model.

    Args:
        layout: Of the parameters, which a checkpoint holds with their slots.
        job_dir: Where checkpoints go; an existing directory, or in a bucket.
        export_bytes: What goes there beside them at the end.

    Raises:
        UserError: If it does not fit.
    """
    if "://" in job_dir:  # a bucket has room
        return
    checkpoint = Placement.of(layout, workers=1).all_bytes
    needed = checkpoint + export_bytes
    free = shutil.disk_usage(job_dir).free
    if needed > free:
        export = f" and the export {byte_size.show(export_bytes)}" if export_bytes else ""
        raise UserError(
            f"--job_dir={job_dir}: a checkpoint takes {byte_size.show(checkpoint)}{export}, but "
            f"its disk has {byte_size.show(free)} left; delete what is not needed, or name a "
            "directory on another disk"
        )
