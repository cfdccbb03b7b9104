"""What a worker or a ps does: serve until the chief is done."""

import concurrent.futures
import dataclasses
import logging
import os
import threading
import time
from collections.abc import Callable

import tensorflow as tf

from tfps.cluster import resources, sockets
from tfps.cluster.liveness import PROBE_SECONDS, kept_probe, probe
from tfps.cluster.spec import Cluster, port_error, refuse_taken_port
from tfps.errors import RunError
from tfps.job_dir import JobDir, report
from tfps.job_dir.task_files import PreemptionNotices, TaskInfo
from tfps.storage.failures import StorageError

# A running closure keeps one thread waiting; with a single one nothing would move.
_LEAST_DEFAULT_THREADS = 4
_LEAVE_POLL_SECONDS = 0.5
_ANNOUNCE_SECONDS = 30.0  # for this process's own server to answer on a busy machine
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """How a server runs."""

    intra_op_threads: int = 0  # within one operation; 0 lets TensorFlow choose
    inter_op_threads: int = 0  # operations at the same time, 2 or more; 0 is one per core
    chief_wait_seconds: float = 600.0
    chief_lost_seconds: float = 60.0
    grace_seconds: float = 25.0


def serve(
    cluster: Cluster, job_dir: JobDir, options: ServerOptions, asked_to_end: threading.Event
) -> None:
    """Runs this task's TensorFlow server; returns when the chief is done, or soon when asked to.

    Anyone who reaches the server's port can run code in this process: TensorFlow's servers listen
    on every interface and ask for no credentials.
    """
    notices = PreemptionNotices(job_dir)
    if cluster.job == "ps":  # what it left behind when it was killed
        notices.clear(cluster.task)
    server = _start(cluster, options)
    resources.start_trimming_memory()
    _log.info("%s serves at %s", cluster.name, server.target.removeprefix("grpc://"))
    _announce(cluster, job_dir)
    if cluster.job == "worker":  # the chief does not see what is lost between a worker and a ps
        sockets.start_keep_alive(cluster.ps)
    chief = cluster.chief[0]
    wait_for_end_of_chief(chief, lambda: is_done(job_dir), options, asked_to_end)
    if asked_to_end.is_set():
        _serve_on(cluster, notices, options.grace_seconds)
        _log.info("%s ends: it was asked to", cluster.name)
    else:
        _log.info("%s ends: the chief is done", cluster.name)


def watch_for_end_of_chief(
    cluster: Cluster, job_dir: JobDir, options: ServerOptions
) -> concurrent.futures.Future:
    """Runs `wait_for_end_of_chief` in a thread, so that it is seen whatever this one does."""
    return concurrent.futures.ThreadPoolExecutor(1, "chief-watch").submit(
        wait_for_end_of_chief,
        cluster.chief[0],
        lambda: is_done(job_dir),
        options,
        threading.Event(),
    )


def wait_for_end_of_chief(
    chief: str,
    is_done: Callable[[], bool],
    options: ServerOptions,
    asked_to_end: threading.Event,
) -> None:
    """Returns when the chief was there, went away, and is done; or when asked to end."""
    began = last_seen = time.monotonic()
    was_seen = False
    with kept_probe(chief) as ask:
        while not asked_to_end.wait(PROBE_SECONDS):
            liveness = ask().liveness
            if liveness.answers:
                was_seen, last_seen = True, time.monotonic()
            elif was_seen and is_done():
                return
            elif was_seen and time.monotonic() - last_seen > options.chief_lost_seconds:
                raise RunError(
                    f"the chief at {chief} has been away for {options.chief_lost_seconds:.0f} s "
                    f"without being done ({liveness.value}); start every task again to resume from "
                    "the last checkpoint"
                )
            elif not was_seen and time.monotonic() - began > options.chief_wait_seconds:
                raise RunError(
                    f"the chief did not appear at {chief} within {options.chief_wait_seconds:.0f} "
                    f"s ({liveness.value}); {liveness.what_to_do}"
                )


def is_done(job_dir: JobDir) -> bool:
    """Whether the job's report says that its chief will do no more."""
    try:
        fields = report.read(job_dir, patience=0.0)
    except StorageError as error:
        _log.warning("%s", error)
        return False
    return fields is not None and fields["status"] != report.RUNNING


def _serve_on(cluster: Cluster, notices: PreemptionNotices, seconds: float) -> None:
    """Serves while the chief is there, until what it needs of this task is saved.

    A worker works on, since the whole job may be ending and the chief can save only when the leases
    in flight are trained. A ps tells the chief to save.
    """
    ps = cluster.task if cluster.job == "ps" else None
    deadline = time.monotonic() + seconds
    if not probe(cluster.chief[0]).answers:
        return
    _log.info("%s was asked to end: it serves up to %.0f s more", cluster.name, seconds)
    if ps:
        notices.post(ps)
    while time.monotonic() < deadline and probe(cluster.chief[0]).answers:
        if ps and not notices.is_posted(ps):
            return
        time.sleep(_LEAVE_POLL_SECONDS)


def _start(cluster: Cluster, options: ServerOptions) -> tf.distribute.Server:
    refuse_taken_port(cluster)
    # One per core, as TensorFlow does, but enough on a small machine too.
    default_threads = max(_LEAST_DEFAULT_THREADS, len(os.sched_getaffinity(0)))
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=options.intra_op_threads,
        inter_op_parallelism_threads=options.inter_op_threads or default_threads,
    )
    config.gpu_options.allow_growth = True
    # Idle threads sleep: tasks often share cores, and spinning was measured to be no faster.
    config.experimental.disable_thread_spinning = True
    try:
        return tf.distribute.Server(
            tf.train.ClusterSpec(cluster.spec()),
            job_name=cluster.job,
            task_index=cluster.index,
            protocol="grpc",
            config=config,
        )
    except tf.errors.UnknownError as error:
        raise port_error(cluster, error.message) from None


def _announce(cluster: Cluster, job_dir: JobDir) -> None:
    """Says in the job_dir what serves here, for the chief to compare."""
    port = cluster.address.rsplit(":", 1)[1]
    identity = probe(f"localhost:{port}", _ANNOUNCE_SECONDS).identity
    if identity is None:
        _log.warning("%s does not answer itself: the chief will see no versions", cluster.name)
    else:
        info = TaskInfo.own(cluster.tasks(), identity.incarnation, resources.memory_limit())
        info.write(job_dir, identity.task)
