r"""Runs one task of a job or, without a cluster, the whole job in one process.

    python -m trainer.task --mode.name=local --config=configs/census.py --job_dir=DIR \
      --data.train=DIR --data.eval=DIR --train.epochs=3

`--config`, `--job_dir` and `--data.train` are what a training needs. Each field of the config is a
flag by its dotted name, such as `--data.train` and `--train.batch_size=512`: docs/flags.md lists
them.

The role comes from TF_CONFIG (or Vertex AI's CLUSTER_SPEC): the chief trains, worker and ps serve,
the evaluator follows the checkpoints. Without either, one process does everything.
"""

import contextlib
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING

# Read by TensorFlow when it loads: a lost peer must be an error, not a wait without end.
os.environ["GRPC_FAIL_FAST"] = "use_caller"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from absl import flags

from tfps.cluster import resources
from tfps.cluster.spec import Cluster
from tfps.cluster.tf_config import decode
from tfps.errors import EXIT_OK, EXIT_RESIZED, EXIT_RUN, UserError
from tfps.job_dir import JobDir
from tfps.storage import tf_settings
from trainer import entry
from trainer.chief import worker_keeper
from trainer.console import terminal
from trainer.console.json_lines import JsonFormatter, to_line
from trainer.console.terminal import ProgressDisplay
from trainer.flags import experiment_flags, limit_flags, pass_flags, task_flags
from trainer.flags.groups import GROUPS
from trainer.flags.pass_flags import Work
from trainer.flags.task_flags import JobPaths, Platform

if TYPE_CHECKING:  # it loads TensorFlow, which must wait for the role's environment
    from tfps.allreduce.group import ReplicaExecutor
    from trainer.chief.interruption import Interruption
    from trainer.chief.run_inputs import RunInputs, RunSettings
    from trainer.chief.wait_limits import WaitLimits

_FLAGS = flags.FLAGS
_log = logging.getLogger("trainer.task")

flags.adopt_module_key_flags(experiment_flags)
flags.adopt_module_key_flags(limit_flags)
flags.adopt_module_key_flags(pass_flags)
flags.adopt_module_key_flags(task_flags)


def main() -> int:
    """Runs this task's role; returns its exit code."""
    cluster = decode(os.environ, task_flags.port())
    paths = JobPaths.of(_FLAGS.job_dir, os.environ)
    _FLAGS.job_dir = job_dir = paths.job_dir
    limit_flags.check(cluster)
    has_worker = cluster.chief_works and cluster.job == "chief" and not _FLAGS.dry_run
    if has_worker:
        own, log = task_flags.json_labels(cluster.of_chief_worker), _FLAGS.tensorflow_log
        worker_keeper.start(cluster, _FLAGS.chief_worker_restarts, own, log)
    display = _start_logging(cluster)
    if not _FLAGS.dry_run:
        resources.allow_files_of_task(cluster)
        _log.info("running as %s", Platform.of(os.environ).role(cluster))
        if cluster.first_worker_leads:
            _log.info(
                "TF_CONFIG has no chief: its worker 0 takes the chief's place, its worker 1 is "
                "worker 0 here, and so on"
            )
    if has_worker:
        worker_keeper.tell(cluster)
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
        return _run_evaluator(cluster, job_dir)
    run = _run_replica if cluster.is_replicated else _run_server
    return run(cluster, job_dir)


def _start_logging(cluster: Cluster) -> ProgressDisplay:
    """Lets log lines and native code's go where the flags say."""
    labels = task_flags.json_labels(cluster)
    if labels:
        entry.write_errors_with(lambda text: to_line("ERROR", text, labels))
    log = _FLAGS.tensorflow_log or task_flags.default_log(cluster)
    if log:
        terminal.redirect_noise(log)
    return terminal.start_logging(
        "lines" if labels else _FLAGS.progress,
        _FLAGS.progress_seconds,
        JsonFormatter(labels) if labels else None,
    )


def _run_chief(cluster: Cluster, display: ProgressDisplay, paths: JobPaths) -> int:
    _set_up_tensorflow()
    # Loaded here: the environment above must be set before TensorFlow is.
    from tfps import byte_size
    from trainer.chief import deploying, preflight, resizing
    from trainer.chief.interruption import Interrupted, Interruption
    from trainer.chief.resizing import ResizedError
    from trainer.chief.run import run
    from trainer.chief.run_inputs import RunInputs, RunSettings

    job_dir = paths.job_dir
    is_pass = pass_flags.is_pass(cluster, job_dir)
    deploys = limit_flags.deploy_arguments(is_pass)
    work = pass_flags.work(experiment_flags.experiment(), is_pass)
    if deploys:
        deploying.check(work.experiment.train)
    memory = byte_size.parse(_FLAGS.ps_memory, "--ps_memory") if _FLAGS.ps_memory else None
    export = "" if deploys else paths.export  # what is deployed has versions
    settings = RunSettings(
        work.experiment, cluster, job_dir, memory, _FLAGS.cache_dir, export, work.use
    )
    limits = limit_flags.wait_limits()
    if _FLAGS.dry_run or _FLAGS.preflight:
        return _look_ahead(RunInputs.check(settings), work)
    interruption = Interruption(_FLAGS.grace_seconds)
    try:
        interruption.install()
        with _opened(cluster, job_dir):
            inputs, replica = _meet(settings, interruption, limits)
            output = work.output(inputs)
            preflight.check_machine(inputs, is_serving=replica is not None, output=output)
            if not cluster.ps:
                _start_staging()
            if _FLAGS.profiler_port is not None:
                _start_profiler()
            monitoring = task_flags.monitoring(paths.tensorboard, experiment_flags.fields())
            run(inputs, limits, interruption, display, monitoring, replica, work.prepare)
        return deploying.deploy_export(deploys, job_dir) if deploys else EXIT_OK
    except Interrupted as interrupted:
        name = signal.Signals(interrupted.signal).name
        _log.warning(
            "stopped by %s; rerun the same command to resume from the last checkpoint", name
        )
        return 128 + interrupted.signal
    except ResizedError as resized:
        _log.warning("beginning again with %s", resized.size)
        resizing.leave_to_launcher(resized.size)
        return EXIT_RESIZED


def _opened(cluster: Cluster, job_dir: JobDir) -> contextlib.AbstractContextManager[None]:
    """Says from now on that the job runs, where other replicas look for that."""
    from tfps.job_dir.report import reopened

    return reopened(job_dir) if cluster.is_replicated else contextlib.nullcontext()


def _meet(
    settings: "RunSettings", interruption: "Interruption", limits: "WaitLimits"
) -> "tuple[RunInputs, ReplicaExecutor | None]":
    """What a run is made from; and without ps the other replicas, met before."""
    from trainer.chief.run import join
    from trainer.chief.run_inputs import RunInputs

    with interruption.recognized():
        if not settings.cluster.is_replicated:
            return RunInputs.check(settings), None
        _check_replica(settings)
        replica = join(settings.cluster, limits, _FLAGS.collectives)
        return RunInputs.check(settings), replica


def _look_ahead(inputs: "RunInputs", work: Work) -> int:
    """Prints what a run needs; exit code 3 if a task cannot take part."""
    from trainer.chief import preflight

    if _FLAGS.dry_run:
        print("\n".join(preflight.dry_run_lines(inputs)))  # noqa: T201 (what the flag is for)
        return EXIT_OK
    preflight.check_machine(inputs, output=work.output(inputs))
    return EXIT_OK if preflight.show_tasks(inputs, _FLAGS.connect_seconds) else EXIT_RUN


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


def _run_evaluator(cluster: Cluster, job_dir: JobDir) -> int:
    _set_up_tensorflow()
    from tfps.cluster.server import watch_for_end_of_chief
    from tfps.job_dir.task_files import start_reporting
    from trainer.chief.run_inputs import RunInputs
    from trainer.evaluator import Evaluator

    inputs = RunInputs.check(_served_settings(cluster, job_dir))
    _start_staging()
    start_reporting(job_dir, cluster.task)
    options = limit_flags.server_options()
    end_of_chief = watch_for_end_of_chief(cluster, job_dir, options)
    Evaluator(inputs, end_of_chief, _FLAGS.stall_seconds).run()
    return EXIT_OK


def _served_settings(cluster: Cluster, job_dir: JobDir) -> "RunSettings":
    """The settings of a run that another task, its chief, leads."""
    from trainer.chief.run_inputs import RunSettings

    experiment = experiment_flags.experiment()
    return RunSettings(experiment, cluster, job_dir, cache_dir=_FLAGS.cache_dir)


def _check_replica(settings: "RunSettings") -> None:
    """Checks the mode and the job_dir, before TensorFlow may be used; says a mode by default."""
    from tfps.storage import objects

    mode = settings.mode
    if not settings.experiment.mode:
        _log.info("TF_CONFIG names no ps: --mode.name=%s", mode.name)
    objects.check([objects.Use("--job_dir", settings.job_dir, writes=True)])


def _run_replica(cluster: Cluster, job_dir: JobDir) -> int:
    _set_up_tensorflow()
    from tfps.cluster.sockets import Traffic
    from tfps.job_dir.task_files import start_reporting
    from trainer.chief.run_inputs import RunInputs
    from trainer.replica import ReplicaWorker

    settings, asked_to_end = _served_settings(cluster, job_dir), _asked_to_end()
    _check_replica(settings)
    options = limit_flags.server_options()
    worker = ReplicaWorker(
        cluster,
        job_dir,
        options,
        _FLAGS.stall_seconds,
        asked_to_end,
        _FLAGS.collectives,
    )
    _start_staging()
    start_reporting(job_dir, cluster.task, Traffic(cluster.addresses()).count)
    worker.run(lambda: RunInputs.check(settings))
    return 128 + signal.SIGTERM if asked_to_end.is_set() else EXIT_OK


def _asked_to_end() -> threading.Event:
    """Set when SIGINT or SIGTERM arrives."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    return asked


def _run_server(cluster: Cluster, job_dir: JobDir) -> int:
    from tfps.cluster.server import serve
    from tfps.cluster.sockets import Traffic
    from tfps.job_dir.task_files import start_reporting
    from tfps.storage import objects

    terminal.quiet_tensorflow()
    options = limit_flags.server_options()
    # Only a ps writes there, its part of each checkpoint.
    writes = cluster.job == "ps"
    objects.check([objects.Use("--job_dir", job_dir, writes)])
    if cluster.job == "worker":
        _start_staging()
    start_reporting(job_dir, cluster.task, Traffic(cluster.addresses()).count)
    asked_to_end = _asked_to_end()
    serve(cluster, job_dir, options, asked_to_end)
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
    entry.run(main, has_lasting_threads=True, rewritten=experiment_flags.take, groups=GROUPS)
