"""The model that a job has exported."""

import posixpath

from tfps import arguments
from tfps.errors import UserError
from tfps.export.loaded_model import ExportedModel
from tfps.export.names import EXPORT_DIRECTORY
from tfps.export.versions import newest_version
from tfps.job_dir import report


@arguments.checked
def load_model(job_dir: str) -> ExportedModel:
    """Loads the newest model that a job has exported.

    Args:
        job_dir: The job's directory, local or `gs://`.

    Raises:
        UserError: If no job ran there, it has exported no model yet, or `ExportedModel.load`
            refuses it.
        StorageError: If the storage does not answer.
    """
    base = posixpath.join(job_dir, EXPORT_DIRECTORY)
    if newest_version(base):
        return ExportedModel.load(base)
    found = report.load(job_dir)
    if found is None:
        raise UserError(
            f"{job_dir} holds neither an exported model nor a {report.FILE}: no job ran there; "
            "name the --job_dir of a trained job"
        )
    if not found.export:  # it may have been told to export elsewhere
        raise UserError(
            f"the job in {job_dir} ({found.status}) has exported no model; wait for its end, or "
            f"export a checkpoint of it: python -m trainer.export --checkpoint={job_dir} "
            f"--config=… --output={base}/1"
        )
    return ExportedModel.load(found.export)
