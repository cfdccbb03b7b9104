"""Where a job writes: as its flags say, or as Vertex AI's output directories do."""

import dataclasses
import posixpath
from collections.abc import Mapping

from tfps.errors import UserError

_CHECKPOINTS = "AIP_CHECKPOINT_DIR"
_MODEL = "AIP_MODEL_DIR"
_TENSORBOARD = "AIP_TENSORBOARD_LOG_DIR"


@dataclasses.dataclass(frozen=True)
class JobPaths:
    """Directories of one job, the same for all its tasks.

    Attributes:
        export: The exported model; empty for its place in the job_dir.
        tensorboard: TensorBoard's curves; empty for their place in the job_dir.
    """

    job_dir: str
    export: str
    tensorboard: str

    @classmethod
    def of(cls, job_dir: str | None, environ: Mapping[str, str]) -> "JobPaths":
        """Decides where a job writes.

        Vertex AI's AIP_CHECKPOINT_DIR is OUTPUT/checkpoints/, which is where a job whose job_dir is
        OUTPUT keeps its checkpoints. A trial of a tuning has an OUTPUT of its own below the job's,
        so that one wins over the --job_dir that all trials were given. AIP_MODEL_DIR, from which
        Vertex AI takes the model, is where the export goes, and AIP_TENSORBOARD_LOG_DIR, from which
        it takes what TensorBoard shows, where that does.
        """
        output = environ.get(_CHECKPOINTS, "").rstrip("/")
        if output:
            output, name = posixpath.split(output)
            if name != "checkpoints":
                raise UserError(
                    f"{_CHECKPOINTS}={environ[_CHECKPOINTS]} is no directory OUTPUT/checkpoints/, "
                    "as Vertex AI sets it; unset it, or give --job_dir"
                )
        if not job_dir and not output:
            raise UserError("--job_dir is missing")
        if output and (not job_dir or f"{output}/".startswith(f"{job_dir.rstrip('/')}/")):
            job_dir = output
        assert job_dir is not None
        export, tensorboard = (environ.get(x, "").rstrip("/") for x in (_MODEL, _TENSORBOARD))
        return cls(job_dir, export, tensorboard)
