"""What every task of a job runs: `python -m trainer.task --config=… --job_dir=…`.

The role comes from TF_CONFIG (or Vertex AI's CLUSTER_SPEC): the chief trains, worker and ps serve,
the evaluator follows the checkpoints. Without either, one process does everything.
"""

import functools
import logging
import os
import posixpath
import signal
import threading
from typing import TYPE_CHECKING

# Read by TensorFlow when it loads: a lost peer must be an error, not a wait without end.
os.environ["GRPC_FAIL_FAST"] = "use_caller"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from absl import flags

from tfps.cluster import open_files
from tfps.cluster.spec import Cluster
from tfps.cluster.tf_config import decode
from tfps.errors import EXIT_OK, EXIT_RUN, UserError
from tfps.storage import local_files, tf_settings
from trainer import entry
from trainer.console import terminal
from trainer.console.json_lines import JsonFormatter, JsonStderr
from trainer.console.progress_display import ProgressDisplay
from trainer.flags import experiment_flags, field_flags, limit_flags, pass_flags, task_flags
from trainer.flags.job_paths import JobPaths
from trainer.flags.platform import Platform

if TYPE_CHECKING:  # it loads TensorFlow, which must wait for the role's environment
    from tfps.experiment.experiment import Experiment
    from trainer.chief.inputs import DataUse
    from trainer.chief.run import Prepare

_FLAGS = flags.FLAGS
_log = logging.getLogger("trainer.task")

flags.adopt_module_key_flags(experiment_flags)
flags.adopt_module_key_flags(limit_flags)
flags.adopt_module_key_flags(pass_flags)
flags.adopt_module_key_flags(task_flags)


def main() -> int:
    """Runs this task's role; returns its exit code."""
    cluster = decode(os.environ)
    paths = JobPaths.of(_FLAGS.job_dir, os.environ)
    _FLAGS.job_dir = paths.job_dir
    _check_flags(cluster)
    labels = _json_labels(cluster)
    if labels:
        entry.at_end(JsonStderr(labels).close)
    log = _FLAGS.tensorflow_log or _default_log(cluster)
    if log:
        terminal.redirect_noise(log)
    display = terminal.start_logging(
        "lines" if labels else _FLAGS.progress,
        _FLAGS.progress_seconds,
        JsonFormatter(labels) if labels else None,
    )
    if not _FLAGS.dry_run:
        open_files.allow_for_task(cluster)
        _log.info("running as %s", Platform.of(os.environ).role(cluster))
    if cluster.job == "ps" or (cluster.job == "chief" and cluster.ps):
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # they hold and coordinate; workers compute
    if cluster.job == "worker" or not cluster.ps:
        tf_settings.keep_blocks()
    if cluster.job == "chief" or _FLAGS.dry_run:
        try:
            return _run_chief(cluster, display, paths)
        finally:
            display.hide()
    if cluster.job == "evaluator":
        return _run_evaluator(cluster)
    return _run_replica(cluster) if cluster.is_replicated else _run_server(cluster)


def _check_flags(cluster: Cluster) -> None:
    if not _FLAGS.config:
        raise UserError("--config is missing")
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        backend = os.environ["KERAS_BACKEND"]
        raise UserError(f"KERAS_BACKEND={backend}: parameter servers need tensorflow; unset it")
    if cluster.job == "evaluator" and cluster.is_local:
        raise UserError(
            "this task is the evaluator of a job without workers and ps, which evaluates in its "
            "one process: leave the evaluator out of the job"
        )
    if _FLAGS.inter_op_threads == 1 and not cluster.is_local:
        raise UserError(
            "--inter_op_threads=1: a task of a cluster needs 2 or more, since one waits while a "
            "closure runs; give 0 for one per core, but no less than 4"
        )
    if _FLAGS.min_workers > max(1, len(cluster.workers)):
        raise UserError(
            f"--min_workers={_FLAGS.min_workers}, but TF_CONFIG names {len(cluster.workers)} "
            "workers; ask for no more than there are"
        )


def _json_labels(cluster: Cluster) -> dict[str, str]:
    """What tells this task's lines from others' where they are JSON; nothing where they are not."""
    is_json = _FLAGS.log_format == "json"
    if _FLAGS.log_format == "auto":
        is_json = Platform.of(os.environ).collects_json
    if not is_json or _FLAGS.dry_run:
        return {}
    name = posixpath.basename(_FLAGS.job_dir.rstrip("/"))
    return {"role": cluster.job, "index": str(cluster.index), "job": name}


def _default_log(cluster: Cluster) -> str | None:
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


def _run_chief(cluster: Cluster, display: ProgressDisplay, paths: JobPaths) -> int:
    _set_up_tensorflow()
    # Loaded here: the environment above must be set before TensorFlow is.
    from tfps import byte_size
    from trainer.chief import dry_run, preflight
    from trainer.chief.interruption import Interrupted, Interruption
    from trainer.chief.monitoring import Monitoring
    from trainer.chief.run import join, run
    from trainer.chief.run_inputs import RunInputs

    is_pass = pass_flags.is_pass(cluster, _FLAGS.job_dir)
    experiment, prepare, use = _work(is_pass)
    limits = limit_flags.wait_limits()
    memory = byte_size.parse(_FLAGS.ps_memory, "--ps_memory") if _FLAGS.ps_memory else None
    check = functools.partial(RunInputs.check, experiment, cluster, _FLAGS.job_dir, memory, use=use)
    if _FLAGS.dry_run:
        inputs = check()
        print("\n".join(dry_run.lines(inputs)))  # noqa: T201 (what the flag is for)
        return EXIT_OK
    if _FLAGS.preflight:
        inputs = check()
        preflight.check_machine(inputs)
        is_ready = preflight.show_tasks(inputs, limits.connect_seconds)
        return EXIT_OK if is_ready else EXIT_RUN
    interruption = Interruption(_FLAGS.grace_seconds)
    try:
        interruption.install()
        replica = None
        if cluster.is_replicated:
            _check_replica(experiment, cluster)
            replica = join(cluster, _FLAGS.job_dir, limits)
        inputs = check(cache_dir=_FLAGS.cache_dir, export=paths.export)
        preflight.check_machine(inputs, is_serving=replica is not None, saves=not is_pass)
        if not cluster.ps:
            _start_staging()
        if _FLAGS.profiler_port is not None:
            _start_profiler()
        monitoring = Monitoring(
            tensorboard=paths.tensorboard,
            sample_seconds=_FLAGS.sample_seconds,
            overrides=tuple(experiment_flags.overridden()),
            metrics_port=_FLAGS.metrics_port,
            metrics_address=_FLAGS.metrics_address,
            profiler_port=_FLAGS.profiler_port,
            histograms_every=_FLAGS.histograms_every,
            trackers=tuple(dict.fromkeys(_FLAGS.track)),
        )
        run(inputs, limits, interruption, display, monitoring, replica, prepare)
    except Interrupted as interrupted:
        name = signal.Signals(interrupted.signal).name
        _log.warning("stopped by %s; the same command goes on from the last checkpoint", name)
        return 128 + interrupted.signal
    return EXIT_OK


def _work(is_pass: bool) -> tuple["Experiment", "Prepare", "DataUse"]:
    """What is trained or passed over, what makes that of a connection, what the data is for."""
    from trainer.chief.beginning import prepare_training
    from trainer.chief.data_pass import prepare_pass
    from trainer.chief.inputs import TRAINED

    experiment = experiment_flags.experiment()
    if not is_pass:
        return experiment, prepare_training, TRAINED
    plan = pass_flags.plan()
    passed_over = plan.experiment(experiment, _FLAGS.data)
    return passed_over, functools.partial(prepare_pass, plan), plan.use


def _start_profiler() -> None:
    """Lets this process be traced; tasks of a cluster can be at their own ports."""
    import tensorflow as tf

    try:
        tf.profiler.experimental.server.start(_FLAGS.profiler_port)
    except tf.errors.OpError as error:
        raise UserError(
            f"--profiler_port={_FLAGS.profiler_port} cannot be used: {error.message}; name another"
        ) from None


def _set_up_tensorflow() -> None:
    """Prepares this process to compute in, other than a server, which has settings of its own."""
    import tensorflow as tf

    terminal.quiet_tensorflow()
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.threading.set_intra_op_parallelism_threads(_FLAGS.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(_FLAGS.inter_op_threads)


def _run_evaluator(cluster: Cluster) -> int:
    _set_up_tensorflow()
    from tfps.cluster.server import watch_for_end_of_chief
    from tfps.job_dir.task_usage import start_reporting
    from trainer.chief.run_inputs import RunInputs
    from trainer.evaluator import Evaluator

    inputs = RunInputs.check(
        experiment_flags.experiment(), cluster, _FLAGS.job_dir, None, _FLAGS.cache_dir
    )
    _start_staging()
    start_reporting(_FLAGS.job_dir, cluster.task)
    options = limit_flags.server_options()
    end_of_chief = watch_for_end_of_chief(cluster, _FLAGS.job_dir, options)
    Evaluator(inputs, end_of_chief, _FLAGS.stall_seconds).run()
    return EXIT_OK


def _check_replica(experiment: "Experiment", cluster: Cluster) -> None:
    """Checks what a task without ps can before it may use TensorFlow: the mode and the job_dir.

    Says the mode where nobody has chosen it.
    """
    from tfps.storage import preflight

    mode = experiment.mode.on(cluster)
    if not experiment.mode.name:
        _log.info("TF_CONFIG names no ps: --mode=%s", mode.name)
    preflight.check([preflight.Use("--job_dir", _FLAGS.job_dir, writes=True)])


def _run_replica(cluster: Cluster) -> int:
    _set_up_tensorflow()
    from tfps.cluster.traffic import Traffic
    from tfps.job_dir.task_usage import start_reporting
    from trainer.chief.run_inputs import RunInputs
    from trainer.replica import ReplicaWorker

    experiment, asked_to_end = experiment_flags.experiment(), _asked_to_end()
    _check_replica(experiment, cluster)
    options = limit_flags.server_options()
    worker = ReplicaWorker(cluster, _FLAGS.job_dir, options, _FLAGS.stall_seconds, asked_to_end)
    _start_staging()
    start_reporting(_FLAGS.job_dir, cluster.task, Traffic(cluster.addresses()).count)
    worker.run(lambda: RunInputs.check(experiment, cluster, _FLAGS.job_dir, None, _FLAGS.cache_dir))
    return 128 + signal.SIGTERM if asked_to_end.is_set() else EXIT_OK


def _asked_to_end() -> threading.Event:
    """Set when SIGINT or SIGTERM arrives."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    return asked


def _run_server(cluster: Cluster) -> int:
    from tfps.cluster.server import serve
    from tfps.cluster.traffic import Traffic
    from tfps.job_dir.task_usage import start_reporting
    from tfps.storage import preflight

    terminal.quiet_tensorflow()
    options = limit_flags.server_options()
    # Only a ps writes there, its part of each checkpoint.
    writes = cluster.job == "ps"
    preflight.check([preflight.Use("--job_dir", _FLAGS.job_dir, writes)])
    if cluster.job == "worker":
        _start_staging()
    start_reporting(_FLAGS.job_dir, cluster.task, Traffic(cluster.addresses()).count)
    asked_to_end = _asked_to_end()
    serve(cluster, _FLAGS.job_dir, options, asked_to_end)
    return 128 + signal.SIGTERM if asked_to_end.is_set() else EXIT_OK


def _start_staging() -> None:
    """Lets this process copy to --cache_dir the shards that its closures ask for."""
    if not _FLAGS.cache_dir:
        return
    from tfps import byte_size
    from tfps.data.shard_cache import ShardCache

    limit = byte_size.parse(_FLAGS.cache_bytes, "--cache_bytes")
    try:
        ShardCache(_FLAGS.cache_dir, limit).start()
    except OSError as error:
        raise UserError(
            f"--cache_dir={_FLAGS.cache_dir} cannot be used: {error.strerror}; name a directory "
            "that is yours alone to write (chmod 700), once you know what is in it, or leave the "
            "flag out"
        ) from None


if __name__ == "__main__":
    entry.run(main, has_lasting_threads=True, rewritten=field_flags.expand)
