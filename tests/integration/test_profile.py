"""A running job is traced, and what slows it down on purpose is named."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from cluster_process import Program, local_cluster

from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.local_cloud.local_cloud import LocalCloud
from tfps.profiling import bound

CONFIG = "--config=configs/criteo.py"
RECORDS = 250_000
BUCKET = "gs://bucket/profile"
SENTENCES = {
    bound.READER: "The reader bounds the run",
    bound.PS: "The run is bounded by ps 1",
    bound.STEPS: "The steps are too small",
    bound.STRAGGLER: "Worker 1 is a straggler",
}
pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.fixture(name="data", scope="module")
def data_fixture(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("profile") / "train"
    flags = [CONFIG, f"--records={RECORDS}", "--shards=64", f"--output={directory}"]
    with Program(*flags, module="trainer.generate") as program:
        assert program.finish() == 0, program.text
    return directory


@contextlib.contextmanager
def job(data: object, job_dir: object, *more: str) -> Iterator[Program]:
    """A job that trains without end."""
    flags = [CONFIG, f"--data.train={data}", f"--job_dir={job_dir}", "--train.epochs=10000"]
    often = ("--progress_seconds=0.5", "--sample_seconds=1")
    with local_cluster(2, 2, [*flags, *often, *more]) as program:
        program.see(r"\[chief\] .* examples/s")
        yield program


def profile(job_dir: object, seconds: int = 3) -> str:
    """What the command says of a job."""
    flags = [f"--job_dir={job_dir}", f"--seconds={seconds}"]
    with Program(*flags, module="trainer.profile") as program:
        assert program.finish() == 0, program.text
        assert "Starting to trace" not in program.text  # TensorFlow's own word
        return program.text


@contextlib.contextmanager
def starved(victim: psutil.Process, others: list[psutil.Process]) -> Iterator[None]:
    """Leaves a process a thirteenth of a core, which other programs take."""
    first, *rest = sorted(os.sched_getaffinity(0))
    for process in others:
        pin(process, set(rest))
    pin(victim, {first})
    hogs = []
    try:
        for _ in range(12):  # each in a session of its own, between which Linux shares a core
            hog = [sys.executable, "-c", "while True: pass"]
            hogs.append(subprocess.Popen(hog, start_new_session=True))
            os.sched_setaffinity(hogs[-1].pid, {first})
        yield
    finally:
        for each in hogs:
            each.kill()
            each.wait()


def threads(process: psutil.Process) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/{process.pid}/task")]


def pin(process: psutil.Process, cores: set[int]) -> None:
    for thread in threads(process):
        os.sched_setaffinity(thread, cores)


def slow_down(program: Program, name: str) -> contextlib.AbstractContextManager[None]:
    tasks = program.tasks()
    return starved(tasks[name], [process for each, process in tasks.items() if each != name])


def wait_for_steps(program: Program, lines: int = 20) -> None:
    """Waits for some lines of progress that begin now: leases become as long as they should be."""
    for _ in range(lines):
        program.see(r"\[chief\] .* examples/s", len(program.lines))


@pytest.mark.timeout(600)
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize(
    ("name", "what"), [("ps 1", bound.PS), ("worker 1", bound.STRAGGLER)], ids=["ps", "worker"]
)
def test_a_task_that_starves_is_named(
    data: pathlib.Path, tmp_path: pathlib.Path, name: str, what: str
) -> None:
    with job(data, tmp_path) as program, slow_down(program, name):
        wait_for_steps(program)
        said = profile(tmp_path, seconds=6)
        assert SENTENCES[what] in said, said


@pytest.mark.timeout(600)
def test_small_batches_are_named_and_the_traces_stay(
    data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with job(data, tmp_path, "--train.batch_size=8") as program:
        wait_for_steps(program)
        said = profile(tmp_path)
    assert f"{SENTENCES[bound.STEPS]}: one computes for " in said
    assert "train.batch_size, which is 8." in said
    for heaviest in ("heaviest of the worker", "heaviest of the ps", "_Send (pulls)"):
        assert heaviest in said
    tasks = re.findall(r"^(chief|worker \d|ps \d) ", said, re.MULTILINE)
    assert sorted(tasks) == ["chief", "ps 0", "ps 1", "worker 0", "worker 1"]
    traces = list(tmp_path.glob("tensorboard/plugins/profile/*/*.xplane.pb"))
    assert len(traces) == 5
    assert f"traces: {traces[0].parent}" in said


@pytest.mark.timeout(600)
def test_slow_storage_is_named(
    data: pathlib.Path, tmp_path: pathlib.Path, cloud: LocalCloud
) -> None:
    copy = f"{BUCKET}/train"
    flags = [CONFIG, f"--data={data}", f"--output={copy}", "--shuffle=whole"]
    with Program(*flags, module="trainer.index") as program:
        assert program.finish() == 0, program.text
    with job(copy, tmp_path) as program:
        cloud.set(bytes_per_second=1_000_000)
        wait_for_steps(program, lines=3)
        said = profile(tmp_path, seconds=10)
        assert SENTENCES[bound.READER] in said, said


def test_what_cannot_be_traced_is_refused(tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    def refused(*flags: str) -> str:
        with Program(*flags, module="trainer.profile") as program:
            assert program.finish() == 2
            return program.text

    assert "no job has run there" in refused(f"--job_dir={tmp_path}")
    assert "up to 60 seconds" in refused(f"--job_dir={tmp_path}", "--seconds=100")
    flags = [CONFIG, f"--data.train={data}", f"--job_dir={tmp_path}", "--mode.name=local"]
    with Program(*flags, "--train.epochs=1000") as program:
        program.see("epoch 1 of")
        assert "start it with --profiler_port" in refused(f"--job_dir={tmp_path}")
        program.terminate()
        program.finish()
    assert "its job is interrupted" in refused(f"--job_dir={tmp_path}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Program(*flags, "--train.epochs=1000", f"--profiler_port={port}") as program:
        program.see("epoch . of")
        said = profile(tmp_path)
        assert "bounds the run" in said
        assert "heaviest of the chief" in said
