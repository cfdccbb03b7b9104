"""Has the tasks of a running job traced: what `trainer.profile` does."""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import contextlib
import os
import posixpath
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf
from absl import flags

from tfps.cluster.liveness import Liveness, ask_all
from tfps.errors import RunError, UserError
from tfps.job_dir import JobDir, report, task_files
from tfps.job_dir.report import RUNNING
from tfps.job_dir.task_name import TaskName
from tfps.monitoring import recorder
from tfps.profiling import trace
from tfps.profiling.trace import TaskTrace
from tfps.storage import files, objects
from tfps.storage.objects import Use
from trainer.console import profile_text

_DIRECTORY = "plugins/profile"  # where TensorBoard's plugin looks
_ENDING = ".xplane.pb"
# A job in one process has TensorFlow's profiler at its port, which is no task's server.
_TRACEABLE = (Liveness.ANSWERS, Liveness.FOREIGN)
_MOST_SECONDS = 60.0  # a trace of 2 s has some 5 MB a task
_ANSWER_SECONDS = 60.0  # for the traces to be written, behind the time that is traced


def run() -> None:
    values = flags.FLAGS
    if not values.job_dir:
        raise UserError("--job_dir is missing")
    if not 0 < values.seconds <= _MOST_SECONDS:
        raise UserError(
            f"--seconds={values.seconds:g}: a trace takes more than 0 and up to "
            f"{_MOST_SECONDS:g} seconds"
        )
    given = values.job_dir
    job_dir = JobDir(given if "://" in given else os.path.abspath(given))
    objects.check([Use("--job_dir", job_dir, writes=True)])
    addresses = _addresses(job_dir)
    directory = _trace(addresses, job_dir.tensorboard, values.seconds)
    traces = _read(addresses, directory)
    lines = profile_text.lines(traces, recorder.read(job_dir))
    sys.stdout.write("\n".join([*lines, f"traces: {directory}"]) + "\n")


def _addresses(job_dir: JobDir) -> dict[TaskName, str]:
    """Where the tasks of a job are that runs and answers."""
    found = report.read(job_dir)
    if found is None or found["status"] != RUNNING:
        state = "no job has run there" if found is None else f"its job is {found['status']}"
        raise UserError(f"--job_dir={job_dir}: {state}; only a job that runs can be traced")
    addresses = task_files.read(job_dir)
    if not addresses:
        raise UserError(
            f"--job_dir={job_dir}: its job runs in one process, which answers nobody; start it "
            "with --profiler_port=6009, and it resumes from its last checkpoint"
        )
    results = ask_all(set(addresses.values()))
    left = {}
    for task, address in addresses.items():
        liveness = results[address].liveness
        if liveness in _TRACEABLE:
            left[task] = address
        else:
            sys.stderr.write(f"{task} at {address} is left out: {liveness.value}\n")
    if not left:
        raise RunError(
            "no task of the job answers; trace it from a machine that reaches the addresses in "
            f"{job_dir.cluster}"
        )
    return left


def _trace(addresses: Mapping[TaskName, str], log_dir: str, seconds: float) -> str:
    """Has the tasks traced; returns the directory of the traces."""
    parent = posixpath.join(log_dir, _DIRECTORY)
    before = set(_names(parent))
    where = ",".join(f"grpc://{address}" for address in addresses.values())

    def collect() -> None:
        with _stdout_held_back():
            tf.profiler.experimental.client.trace(where, log_dir, round(1000 * seconds))

    pool = ThreadPoolExecutor(max_workers=1)
    tracing = pool.submit(collect)
    try:
        tracing.result(seconds + _ANSWER_SECONDS)
    except TimeoutError:
        raise RunError(
            f"the tasks have not written their traces within {seconds + _ANSWER_SECONDS:g} s: "
            f"{', '.join(map(str, addresses))}"
        ) from None
    except tf.errors.OpError as error:
        raise RunError(f"the job cannot be traced: {error.message}") from None
    finally:
        pool.shutdown(wait=False)
    deadline = time.monotonic() + _ANSWER_SECONDS
    while not (new := set(_names(parent)) - before):
        if time.monotonic() > deadline:
            raise RunError(f"no task has written a trace to {parent}; can they all write there?")
        time.sleep(0.2)
    return posixpath.join(parent, max(new))


@contextlib.contextmanager
def _stdout_held_back() -> Iterator[None]:
    """Keeps off stdout what TensorFlow's native code writes there by itself."""
    sys.stdout.flush()
    kept, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)


def _names(directory: str) -> list[str]:
    try:
        return files.names(directory)
    except FileNotFoundError:
        return []


def _read(addresses: Mapping[TaskName, str], directory: str) -> dict[TaskName, TaskTrace]:
    """The traces by task; those that are missing are told."""
    found = {}
    for task, address in addresses.items():
        try:
            found[task] = trace.read(
                posixpath.join(directory, f"{address.replace(':', '_')}{_ENDING}")
            )
        except FileNotFoundError:
            sys.stderr.write(f"{task} at {address} has left no trace; can it write {directory}?\n")
    return found
