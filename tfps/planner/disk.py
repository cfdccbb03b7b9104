"""Looks whether a checkpoint fits on the job_dir's disk, before a run spends hours for it."""

import shutil

from tfps import byte_size
from tfps.errors import UserError
from tfps.planner.memory import Placement
from tfps.store.layout import StoreLayout


def check_disk_space(layout: StoreLayout, job_dir: str) -> None:
    """Refuses a local job_dir that has no room for one more checkpoint.

    Args:
        layout: Of the parameters, which a checkpoint holds with their slots.
        job_dir: Where checkpoints go; an existing directory, or in a bucket.

    Raises:
        UserError: If it does not fit.
    """
    if "://" in job_dir:  # a bucket has room
        return
    placement = Placement.of(layout, workers=1)
    needed = sum(placement.held_bytes(ps) for ps in range(placement.ps))
    free = shutil.disk_usage(job_dir).free
    if needed > free:
        raise UserError(
            f"--job_dir={job_dir}: a checkpoint takes {byte_size.show(needed)}, but its disk has "
            f"{byte_size.show(free)} left; delete what is not needed, or name a directory on "
            "another disk"
        )
