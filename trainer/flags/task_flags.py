"""Flags of a task: where it writes, and what it shows."""

from absl import flags

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
