"""What workers and ps do without their chief, and with their port taken."""

import json
import pathlib
import socket
import time

import pytest
from cluster_process import PATIENCE, Program
from reserved_ports import ports_fixture, tf_config  # noqa: F401

from tests.answering_servers import AnsweringServers


def serve(ports: list[socket.socket], job: str, job_dir: pathlib.Path, *flags: str) -> Program:
    """Starts a worker or ps; its own port is free."""
    environ = tf_config(ports, job)
    ports[("chief", "worker", "ps").index(job)].close()
    return Program("--config=configs/smoke.py", f"--job_dir={job_dir}", *flags, environ=environ)


@pytest.mark.parametrize("job", ["worker", "ps"])
def test_a_taken_port(ports: list[socket.socket], job_dir: pathlib.Path, job: str) -> None:
    for each in ports:
        each.listen()
    argv = ["--config=configs/smoke.py", f"--job_dir={job_dir}"]
    with Program(*argv, environ=tf_config(ports, job)) as program:
        assert program.finish() == 2, program.text
    port = ports[("chief", "worker", "ps").index(job)].getsockname()[1]
    place = f"error: {job} 0 of 1 cannot serve at 127.0.0.1:{port}: Address already in use; free"
    assert [line.startswith(place) for line in program.errors] == [True], program.text


def test_a_chief_that_never_comes(ports: list[socket.socket], job_dir: pathlib.Path) -> None:
    with serve(ports, "worker", job_dir, "--chief_wait_seconds=2") as program:
        assert program.finish() == 3, program.text
    chief = f"127.0.0.1:{ports[0].getsockname()[1]}"
    [error] = program.errors
    assert error.startswith(
        f"error: the chief did not appear at {chief} within 2 s (its port refused "
    )


@pytest.mark.quick("None")
@pytest.mark.parametrize("status", [None, "running", "finished"])
def test_a_chief_that_goes_away(
    ports: list[socket.socket], job_dir: pathlib.Path, status: str | None
) -> None:
    """A worker waits for a lost chief; it ends at once when the report says that all is done."""
    job_dir.mkdir()
    if status:
        (job_dir / "report.json").write_text(json.dumps({"format": 2, "status": status}))
    port = ports[0].getsockname()[1]
    limit = PATIENCE if status == "finished" else 2
    with serve(ports, "worker", job_dir, f"--chief_lost_seconds={limit}") as program:
        ports[0].close()
        with AnsweringServers([f"127.0.0.1:{port}"]) as chief:
            assert chief.asked.wait(PATIENCE)
        lost = time.monotonic()
        code = program.finish()
    if status == "finished":
        assert code == 0, program.text
        assert program.lines[-1].endswith("worker 0 of 1 ends: the chief is done")
        return
    assert code == 3, program.text
    assert time.monotonic() - lost < 2 + 60
    [error] = program.errors
    assert error.startswith(f"error: the chief at 127.0.0.1:{port} has been away for 2 s ")
