"""The model that a job has exported, as it is or as it goes on."""

import threading
import weakref
from collections.abc import Callable

import tensorflow as tf

from tfps import arguments
from tfps.data.dataset_names import poll_seconds
from tfps.errors import RunError, UserError
from tfps.export.loaded_model import ExportedModel
from tfps.export.versions import newest_version
from tfps.job_dir import JobDir, report


@arguments.checked
def load_model(job_dir: str, follow: bool = False) -> ExportedModel:
    """Loads the newest model that a job has exported.

    Args:
        job_dir: The job's directory, local or `gs://`.
        follow: Whether the model becomes each newer version, and takes each delta
            (`train.export_deltas`), some seconds after it is there; `close()` ends that.

    Raises:
        UserError: If no job ran there, it has exported no model yet, or `ExportedModel.load`
            refuses it.
        StorageError: If the storage does not answer.
    """
    base = JobDir(job_dir).export
    if newest_version(base):
        model = ExportedModel.load(base)
        if follow:
            thread = threading.Thread(
                target=_follow, args=(weakref.ref(model), base), name="follow", daemon=True
            )
            thread.start()
        return model
    found = report.load(JobDir(job_dir))
    if found is None:
        raise UserError(
            f"{job_dir} holds neither an exported model nor a report.json: no job ran there; "
            "name the --job_dir of a trained job"
        )
    if not found.export:  # it may export elsewhere
        raise UserError(
            f"the job in {job_dir} ({found.status}) has exported no model; wait for its end, or "
            f"export a checkpoint of it: python -m trainer.export --checkpoint={job_dir} "
            f"--config=… --output={base}/1"
        )
    if follow:
        raise UserError(
            f"the job in {job_dir} exports to {found.export}, which has no versions to follow; "
            "leave follow out"
        )
    return ExportedModel.load(found.export)


def _follow(known: Callable[[], ExportedModel | None], base: str) -> None:
    """Looks for newer versions until a model is closed, or nobody has it any more."""
    said = ""
    while (model := known()) and not model.is_closed.is_set():
        try:
            model.become_newest(base)
            said = ""
        except (RunError, UserError) as error:
            if str(error) != said:
                tf.get_logger().warning("%s; the model stays as it is", error)
            said = str(error)
        except Exception:  # a fault of this program, after which it looks again
            tf.get_logger().exception("no look for other versions of %s", base)
        ended = model.is_closed
        del model  # or nobody could let it go
        ended.wait(poll_seconds(base))
