"""Jobs on N machines, of which each is an address of the loopback with a launcher of its own."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import time
from collections.abc import Iterator, Sequence

import pytest
from cluster_process import (
    PATIENCE,
    Program,
    assert_gone,
    read_report,
    trainer_flags,
    wait_for_checkpoint,
)
from datasets_on_disk import UNEVEN, Datasets

from cloud.local.command import Ports
from tests.loaded import client, started

EPOCHS = 2
LONG = ("--train.batch_size=8", "--train.checkpoint_seconds=0.5")


class Machines:
    """Machines and where they meet."""

    def __init__(self, count: int, port: int):
        self._hosts = [f"127.0.0.{2 + rank}" for rank in range(count)]
        self._port = port
        self._stack = contextlib.ExitStack()

    def start(self, rank: int, arguments: Sequence[str], *flags: str) -> Program:
        own = (f"--nodes={','.join(self._hosts)}", f"--port={self._port}", *flags)
        program = Program(*own, "--", *arguments, module="cloud.node", environ={"RANK": str(rank)})
        return self._stack.enter_context(program)

    def start_all(self, arguments: Sequence[str], *flags: str) -> list[Program]:
        """The last first: nobody has to wait for another's start."""
        ranks = range(len(self._hosts))
        return [self.start(rank, arguments, *flags) for rank in reversed(ranks)][::-1]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(name="machines")
def machines_fixture() -> Iterator[Machines]:
    with Ports(1) as ports:
        [port] = ports.numbers
    found = Machines(2, port)
    yield found
    found.close()


def connected(port: int) -> socket.socket:
    """A connection to where machines meet, once one can connect there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 10)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def check(job_dir: pathlib.Path, records: int, workers: int) -> None:
    assert_gone(list(started.processes_with(f"--job_dir={job_dir}")))
    report = read_report(job_dir)
    counts = {name: report["examples"][name] for name in ("trained", "skipped", "bad")}
    assert counts == {"trained": EPOCHS * records, "skipped": 0, "bad": 0}
    assert len(report["workers"]) == workers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "settings", "workers"),
    [
        ((), (), 2),
        (("--workers_per_node=2", "--ps_per_node=2"), (), 4),
        ((), ("--chief_works",), 3),
        (("--ps_per_node=0",), ("--mode.name=allreduce",), 2),
    ],
    ids=["equal", "two of each", "chief works", "allreduce"],
)
def test_machines_train_together(
    flags: tuple[str, ...],
    settings: tuple[str, ...],
    workers: int,
    machines: Machines,
    datasets: Datasets,
    job_dir: pathlib.Path,
) -> None:
    arguments = trainer_flags(datasets.uneven, job_dir, *settings)
    launchers = machines.start_all(arguments, *flags)
    assert [each.finish() for each in launchers] == [0, 0]
    assert "[chief] " in launchers[0].text
    assert "[chief] " not in launchers[1].text
    check(job_dir, sum(UNEVEN), workers)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_machine_is_lost_and_comes_again(
    rank: int, machines: Machines, datasets: Datasets, job_dir: pathlib.Path
) -> None:
    arguments = trainer_flags(datasets.long, job_dir, *LONG)
    launchers = machines.start_all(arguments)
    wait_for_checkpoint(job_dir)
    os.kill(launchers[rank].pid, signal.SIGKILL)
    other = launchers[1 - rank]
    other.see(r"127\.0\.0\.\d\S* is gone")
    launchers[rank] = machines.start(rank, arguments)
    other.see(r"127\.0\.0\.\d\S* is back")
    assert [each.finish() for each in launchers] == [0, 0]
    check(job_dir, 12_000, 2)


@pytest.mark.slow
def test_all_end_with_the_chief_s_exit_code(
    machines: Machines, datasets: Datasets, job_dir: pathlib.Path
) -> None:
    arguments = trainer_flags(datasets.uneven, job_dir, "--train.batch_size=0")
    launchers = machines.start_all(arguments)
    assert [each.finish() for each in launchers] == [2, 2]
    assert "train.batch_size" in launchers[0].text


def begun_again(
    machines: Machines, arguments: Sequence[str], job_dir: pathlib.Path
) -> list[Program]:
    """Launchers of a run that has got 3 workers and a ps while it trained."""
    launchers = machines.start_all(arguments)
    wait_for_checkpoint(job_dir)
    flags = (f"--job_dir={job_dir}", "--workers=3", "--ps=1")
    done = client.run("trainer.resize", *flags, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return launchers


@pytest.mark.slow
def test_all_machines_begin_again_with_other_numbers_of_tasks(
    machines: Machines, datasets: Datasets, job_dir: pathlib.Path
) -> None:
    launchers = begun_again(machines, trainer_flags(datasets.long, job_dir, *LONG), job_dir)
    for launcher in launchers:
        launcher.see("beginning again with 3 workers and 1 ps, of 2 workers and 2 ps")
    assert [each.finish() for each in launchers] == [0, 0]
    check(job_dir, 12_000, 3)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_machine_that_is_lost_after_a_change_takes_the_numbers_from_the_others(
    rank: int, machines: Machines, datasets: Datasets, job_dir: pathlib.Path
) -> None:
    arguments = trainer_flags(datasets.long, job_dir, *LONG)
    launchers = begun_again(machines, arguments, job_dir)
    os.kill(launchers[rank].pid, signal.SIGKILL)
    launchers[1 - rank].see(r"127\.0\.0\.\d\S* is gone")
    launchers[rank] = machines.start(rank, arguments)
    launchers[rank].see("beginning again with 3 workers and 1 ps, of 2 workers and 2 ps")
    launchers[1 - rank].see(r"127\.0\.0\.\d\S* is back")
    assert [each.finish() for each in launchers] == [0, 0]
    check(job_dir, 12_000, 3)


@pytest.mark.slow
def test_a_signal_to_the_first_saves_and_ends_all(
    machines: Machines, datasets: Datasets, job_dir: pathlib.Path
) -> None:
    launchers = machines.start_all(trainer_flags(datasets.long, job_dir, *LONG))
    wait_for_checkpoint(job_dir)
    launchers[0].terminate()
    assert [each.finish() for each in launchers] == [128 + signal.SIGTERM] * 2


def test_other_arguments_are_refused(
    machines: Machines, datasets: Datasets, job_dir: pathlib.Path
) -> None:
    arguments = trainer_flags(datasets.uneven, job_dir)
    first = machines.start(0, arguments)
    other = machines.start(1, [*arguments, "--train.epochs=3"])
    assert other.finish() == 2
    assert "it was started with other flags or arguments than the first machine" in other.text
    first.terminate()


@pytest.mark.parametrize("rank", [0, 1])
def test_who_does_not_come_is_named(rank: int, machines: Machines, job_dir: pathlib.Path) -> None:
    launcher = machines.start(rank, [f"--job_dir={job_dir}", "--config=x"], "--meet_seconds=1")
    assert launcher.finish() == 3
    said = [line for line in launcher.lines if line.startswith("error: ")]
    wanted = (
        r"machines 1 \(127.0.0.3\) of 2 have not",
        r"the first machine, 127.0.0.2:\d+, has not",
    )
    assert len(said) == 1
    assert re.search(wanted[rank] + r".* in 1 s \(--meet_seconds\)", said[0])


@pytest.mark.slow
def test_a_stranger_at_the_port_disturbs_nobody(machines: Machines, job_dir: pathlib.Path) -> None:
    launcher = machines.start(0, [f"--job_dir={job_dir}", "--config=x"], "--meet_seconds=9")
    [port] = re.findall(r":(\d+)$", launcher.see(r"the first is (\S+)")[1])
    for said in (b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b'{"rank": 1}\n', b"\xff\n", b""):
        with connected(int(port)) as stranger:
            stranger.sendall(said)
    assert launcher.finish() == 3
    assert "Traceback" not in launcher.text
