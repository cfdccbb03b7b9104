"""Flags of a task: where it writes, and what it shows."""

import dataclasses
import enum
import json
import os
import posixpath
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from absl import flags

from tfps.cluster.spec import CLUSTER_SPEC, TF_CONFIG, Cluster
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.storage import local_files

_CHECKPOINTS = "AIP_CHECKPOINT_DIR"
_MODEL = "AIP_MODEL_DIR"
_TENSORBOARD = "AIP_TENSORBOARD_LOG_DIR"
_FLAGS = flags.FLAGS
flags.DEFINE_boolean(
    "chief_works", False, "Adds a worker next to the chief, on its machine; the same for all tasks."
)
flags.DEFINE_integer(
    "chief_worker_port",
    0,
    "Port of the worker next to the chief; 0: the one after the chief's.",
    lower_bound=0,
    upper_bound=(1 << 16) - 1,
)
flags.DEFINE_integer(
    "chief_worker_restarts",
    3,
    "How often the worker next to the chief is restarted when it dies.",
    lower_bound=0,
)
flags.DEFINE_string("job_dir", None, "Where checkpoints, export and report go; every task's.")
flags.DEFINE_boolean(
    "dry_run", False, "Prints what lands on which ps, its memory and the wire's bytes; then ends."
)
flags.DEFINE_boolean(
    "preflight", False, "Chief: prints which tasks answer and can take part; then ends."
)
flags.DEFINE_string(
    "ps_memory", None, "Memory of one ps, e.g. 16GiB; a run that needs more is refused."
)
flags.DEFINE_string(
    "cache_dir", "", "Worker: directory for copies of shards on gs://; the same flag for all tasks."
)
flags.DEFINE_enum(
    "collectives",
    "auto",
    ["auto", "nccl"],
    "Without ps: nccl where every replica has a GPU of its own; auto: a ring over gRPC.",
)
flags.DEFINE_string("cache_bytes", "50GiB", "Worker: most bytes of --cache_dir.")
flags.DEFINE_enum(
    "progress", "auto", ["auto", "live", "lines"], "How to show progress; auto: live on a terminal."
)
flags.DEFINE_float("progress_seconds", 10.0, "Between two lines of progress.", 0.0)
flags.DEFINE_float(
    "sample_seconds", 10.0, "Between two points of the run's history and TensorBoard's curves.", 0.0
)
flags.DEFINE_integer(
    "histograms_every",
    0,
    "Chief: epochs after which TensorBoard is shown how parameters and gradients are spread.",
    0,
)
flags.DEFINE_string(
    "metrics_address", "127.0.0.1", "Chief: address of --metrics_port; 0.0.0.0 for other machines."
)
flags.DEFINE_multi_enum(
    "track", [], ["mlflow", "vertex", "wandb"], "Chief: a service that keeps the run beside others."
)
flags.DEFINE_enum(
    "log_format",
    "auto",
    ["auto", "text", "json"],
    "Log lines for people, or objects of JSON; auto: JSON on Vertex AI and Kubernetes.",
)
flags.DEFINE_string(
    "tensorflow_log",
    None,
    "File for TensorFlow's own messages; default: stderr, in local mode JOB_DIR/logs.",
)


@dataclasses.dataclass(frozen=True)
class JobPaths:
    """Directories of one job, the same for all its tasks; empty for a place in the job_dir."""

    job_dir: JobDir
    export: str  # the exported model
    tensorboard: str  # TensorBoard's curves

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
        return cls(JobDir(job_dir), export, tensorboard)


def port() -> int | None:
    """Of the worker next to the chief, 0 for the one after the chief's; None without a worker."""
    return int(_FLAGS.chief_worker_port) if _FLAGS.chief_works else None


flags.DEFINE_integer(
    "metrics_port", None, "Chief: port at which Prometheus may ask for the run's figures.", 0
)


flags.DEFINE_integer(
    "profiler_port",
    None,
    "One process: port at which trainer.profile traces it; open to whoever reaches it.",
    1,
)


class Platform(enum.Enum):
    """Where a task runs; the value is its name for people."""

    VERTEX = "Vertex AI"
    JOBSET = "Kubernetes (JobSet)"
    TFJOB = "Kubernetes (TFJob)"
    KUBERNETES = "Kubernetes"
    SLURM = "Slurm"
    LOCAL = "this machine"

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Platform":
        """Reads the platform from the environment variables that it sets."""
        if any(
            name in environ for name in (CLUSTER_SPEC, "CLOUD_ML_PROJECT_ID", "CLOUD_ML_JOB_ID")
        ):
            return cls.VERTEX
        if "SLURM_JOB_ID" in environ and "SLURM_PROCID" in environ:
            return cls.SLURM
        if "JOBSET_NAME" in environ:
            return cls.JOBSET
        if "KUBERNETES_SERVICE_HOST" in environ:
            return cls.TFJOB if _is_of_tfjob(environ.get(TF_CONFIG, "")) else cls.KUBERNETES
        return cls.LOCAL

    @property
    def collects_json(self) -> bool:
        """Whether what tasks write to stderr is read by a program that understands JSON."""
        return self in (Platform.VERTEX, Platform.JOBSET, Platform.TFJOB, Platform.KUBERNETES)

    def role(self, cluster: Cluster) -> str:
        """What a task is and where, for example "worker 1 of 4 on Vertex AI"."""
        return f"{'the only task' if cluster.is_local else cluster.name} on {self.value}"


def _is_of_tfjob(tf_config: str) -> bool:
    """Whether the training operator wrote it, which alone on Kubernetes adds "environment"."""
    try:
        config = json.loads(tf_config)
    except ValueError:
        return False
    return isinstance(config, dict) and config.get("environment") == "cloud"


if TYPE_CHECKING:  # it loads TensorFlow, which must wait for the role's environment
    from trainer.chief.monitoring import Monitoring


def monitoring(tensorboard: str, overrides: Sequence[str]) -> "Monitoring":
    """How a run is watched; `tensorboard` is empty for its place in the job_dir."""
    from trainer.chief.monitoring import Monitoring

    return Monitoring(
        tensorboard=tensorboard,
        sample_seconds=_FLAGS.sample_seconds,
        overrides=tuple(overrides),
        metrics_port=_FLAGS.metrics_port,
        metrics_address=_FLAGS.metrics_address,
        profiler_port=_FLAGS.profiler_port,
        histograms_every=_FLAGS.histograms_every,
        trackers=tuple(dict.fromkeys(_FLAGS.track)),
    )


def json_labels(cluster: Cluster) -> dict[str, str]:
    """What tells this task's lines from others' where they are JSON; nothing where they are not."""
    is_json = _FLAGS.log_format == "json"
    if _FLAGS.log_format == "auto":
        is_json = Platform.of(os.environ).collects_json
    if not is_json or _FLAGS.dry_run:
        return {}
    return {"role": cluster.job, "index": str(cluster.index), "job": JobDir(_FLAGS.job_dir).name}


def default_log(cluster: Cluster) -> str | None:
    """A local run's terminal is a person's; elsewhere stderr is what the platform collects."""
    if _FLAGS.dry_run:
        return os.devnull
    if not cluster.is_local or "://" in _FLAGS.job_dir:
        return None
    log = posixpath.join(JobDir(_FLAGS.job_dir).logs, "chief-0.log")
    try:
        local_files.make_directories(posixpath.dirname(log))
        open(log, "a").close()
    except OSError as error:
        raise UserError(
            f"--job_dir={_FLAGS.job_dir} cannot be written ({error.strerror})"
        ) from None
    return log
