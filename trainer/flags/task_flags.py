"""Flags of a task: where it writes, and what it shows."""

import os
import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import flags

from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.storage import local_files
from trainer.flags.platform import Platform

if TYPE_CHECKING:  # it loads TensorFlow, which must wait for the role's environment
    from trainer.chief.monitoring import Monitoring

_FLAGS = flags.FLAGS

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
flags.DEFINE_integer(
    "metrics_port", None, "Chief: port at which Prometheus may ask for the run's figures.", 0
)
flags.DEFINE_string(
    "metrics_address", "127.0.0.1", "Chief: address of --metrics_port; 0.0.0.0 for other machines."
)
flags.DEFINE_integer(
    "profiler_port",
    None,
    "One process: port at which trainer.profile traces it; open to whoever reaches it.",
    1,
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


def monitoring(tensorboard: str, overrides: Sequence[str]) -> "Monitoring":
    """How a run is watched.

    Args:
        tensorboard: Where TensorBoard's curves go; empty for their place in the job_dir.
    """
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
    name = posixpath.basename(_FLAGS.job_dir.rstrip("/"))
    return {"role": cluster.job, "index": str(cluster.index), "job": name}


def default_log(cluster: Cluster) -> str | None:
    """A local run's terminal is a person's; elsewhere stderr is what the platform collects."""
    if _FLAGS.dry_run:
        return os.devnull
    if not cluster.is_local or "://" in _FLAGS.job_dir:
        return None
    log = posixpath.join(_FLAGS.job_dir, "logs", "chief-0.log")
    try:
        local_files.make_directories(posixpath.dirname(log))
        open(log, "a").close()
    except OSError as error:
        raise UserError(
            f"--job_dir={_FLAGS.job_dir} cannot be written ({error.strerror})"
        ) from None
    return log
