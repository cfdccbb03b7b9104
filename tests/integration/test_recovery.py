"""What dies, and what happens then: real signals to the tasks of real clusters."""

import os
import pathlib
import re
import signal
import socket
import time

import pytest
from cluster_process import (
    PATIENCE,
    Program,
    assert_gone,
    checkpoints,
    local_cluster,
    read_report,
    trainer_flags,
    wait_for_checkpoint,
)
from counting_job import flags as counting_flags
from datasets_on_disk import Datasets
from reserved_ports import ports_fixture, tf_config  # noqa: F401

from tests import counting_task

RECORDS, EPOCHS, BATCH = 12_000, 2, 8
SLOW = (f"--train.batch_size={BATCH}", "--task.dim=2")  # an epoch lasts seconds
EXACT = {"per_epoch": RECORDS, "trained": EPOCHS * RECORDS, "skipped": 0, "bad": 0}


@pytest.fixture(name="flags")
def flags_fixture(datasets: Datasets, job_dir: pathlib.Path) -> list[str]:
    return trainer_flags(datasets.long, job_dir, *SLOW)


# Of a job whose steps take a while in which nothing is computed: its epochs last seconds, too.
COUNTED, COUNTED_BATCH, STEP_SECONDS = (1000, 500, 1500), 50, 0.1
UNSEEN = 10 + 9 + 3  # steps of a worker that was taken for lost: it looks once in ten


@pytest.fixture(name="counted")
def counted_fixture(tmp_path: pathlib.Path, job_dir: pathlib.Path) -> list[str]:
    task = counting_task.CountingTask(records=sum(COUNTED), step_seconds=STEP_SECONDS)
    data = counting_task.write(tmp_path / "data", task, COUNTED)
    own = (f"--train.batch_size={COUNTED_BATCH}", f"--train.epochs={EPOCHS}")
    return counting_flags(data, job_dir, task, *own, "--progress_seconds=0.5")


def test_a_killed_worker(counted: list[str], job_dir: pathlib.Path) -> None:
    with local_cluster(2, 1, counted) as program:
        program.see("epoch 1 of 2 trained")
        tasks = program.tasks()
        began = time.time()
        tasks["worker 1"].suspend()  # the run cannot end before worker 0 is back
        tasks["worker 0"].kill()
        program.see(r"\[chief\] .*worker 0 at 127.0.0.1:\d+ is lost")
        program.see(r"\[launcher\] worker 0 .*restart 1 of 3")
        program.see(r"\[chief\] .*worker 0 is back after")
        returned = program.tasks()["worker 0"]
        tasks["worker 1"].resume()
        assert program.finish() == 0, program.text
        assert_gone([*tasks.values(), returned])
    report = read_report(job_dir)
    repeated, records = report["examples"].pop("repeated"), sum(COUNTED)
    exact = {"per_epoch": records, "trained": EPOCHS * records, "skipped": 0, "bad": 0}
    assert report["examples"] == exact
    assert sum(share["records"] for share in report["workers"]) == EPOCHS * records
    assert all(share["leases"] for share in report["workers"])
    [failure] = [each for each in report["failures"] if each["task"] == "worker 0"]
    # At most the batch in flight of each lease that a worker held or had waiting. On a busy machine
    # worker 1 was stopped for so long that it counts as lost, too.
    more = UNSEEN * (len(report["failures"]) - 1)
    assert 0 <= repeated <= (4 + more) * COUNTED_BATCH
    assert failure["what"] == "its port refused connections"
    assert began <= failure["when"] <= time.time()
    assert 0 < failure["back_after"] < time.time() - began
    assert program.errors == []


@pytest.mark.slow
def test_a_killed_chief_goes_on_where_it_was(
    flags: list[str], job_dir: pathlib.Path, datasets: Datasets
) -> None:
    flags = [*flags, "--train.checkpoint_seconds=0.5", f"--data.eval={datasets.eval}"]
    with local_cluster(2, 2, flags) as program:
        first = wait_for_checkpoint(job_dir)
        tasks = program.tasks()
        tasks["chief 0"].kill()
        program.see(r"\[launcher\] chief was killed by SIGKILL; restart 1 of 3 in 1 s")
        resumed = program.see(r"resuming from .*: (\S+) records trained")[1]
        servers = {name: task.pid for name, task in program.tasks().items() if name != "chief 0"}
        assert program.finish() == 0, program.text
        assert_gone(list(tasks.values()))
    assert servers == {name: task.pid for name, task in tasks.items() if name != "chief 0"}
    # The checkpoint was made in the middle of the first epoch.
    assert first["queue"]["epoch"] == 0
    assert 0 < first["queue"]["trained"] < RECORDS
    assert first["queue"]["cursor"] == first["queue"]["trained"]
    assert first["queue"]["trained"] <= int(resumed.replace(",", "")) < EPOCHS * RECORDS
    report = read_report(job_dir)
    assert report["status"] == "finished"
    assert report["examples"] == {**EXACT, "repeated": 0}
    assert (report["epochs"], report["steps"]) == (EPOCHS, EPOCHS * RECORDS // BATCH)
    assert report["resumed_from"] is not None
    assert report["metrics"]["auc"] > 0.7


@pytest.mark.slow
def test_everything_killed_goes_on_from_the_last_checkpoint(
    flags: list[str], job_dir: pathlib.Path
) -> None:
    flags = [*flags, "--train.checkpoint_seconds=0.5"]
    with local_cluster(2, 2, flags) as program:
        first = wait_for_checkpoint(job_dir)
        tasks = list(program.tasks().values())
    assert_gone(tasks)  # with their launcher, when the block was left
    assert read_report(job_dir)["status"] == "running"
    with local_cluster(2, 2, flags) as program:
        resumed = program.see(r"resuming from .*: (\S+) records trained")[1]
        assert program.finish() == 0, program.text
    assert int(resumed.replace(",", "")) >= first["queue"]["trained"]
    assert read_report(job_dir)["examples"] == {**EXACT, "repeated": 0}


@pytest.mark.slow
def test_a_ps_that_is_back_before_it_is_missed(counted: list[str], job_dir: pathlib.Path) -> None:
    """Nobody has asked it anything meanwhile, for its only worker stands still."""
    with local_cluster(1, 2, counted) as program:
        program.see(r"\[chief\] .* epoch 1/2: [1-9]")
        tasks = program.tasks()
        tasks["worker 0"].suspend()
        tasks["ps 1"].kill()
        program.see(r"\[chief\] .*ps 1 at \S+ was lost, and with it")
        tasks["worker 0"].resume()
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    assert (report["examples"]["trained"], report["examples"]["skipped"]) == (EPOCHS * 3000, 0)
    assert "ps 1" in report["recoveries"][0]["what"]


# The first holds the leases' progress as well. The run of test_chaos.py that is not slow kills one.
@pytest.mark.slow
@pytest.mark.parametrize("ps", ["ps 0", "ps 1"])
def test_a_killed_ps(flags: list[str], job_dir: pathlib.Path, ps: str) -> None:
    """The chief goes back to the last checkpoint in place; no other task is restarted."""
    with local_cluster(2, 2, flags) as program:
        program.see("saved ")
        before = {name: task.pid for name, task in program.tasks().items()}
        program.tasks()[ps].kill()
        program.see(rf"\[chief\] .*{ps}.* was lost.*; waiting up to 600 s for it")
        program.see(r"\[chief\] .*training continues, \d+\.\d s after the loss was noticed")
        after = {name: task.pid for name, task in program.tasks().items()}
        assert program.finish() == 0, program.text
    assert {name for name in before if before[name] != after[name]} == {ps}
    assert program.errors == []
    report = read_report(job_dir)
    assert report["status"] == "finished"
    assert {**report["examples"], "repeated": 0} == {**EXACT, "repeated": 0}
    assert (report["epochs"], report["steps"]) == (EPOCHS, EPOCHS * RECORDS // BATCH)
    [recovery] = report["recoveries"]
    assert ps in recovery["what"]
    assert 0 <= recovery["records"] <= RECORDS
    assert 0 < recovery["seconds"] < PATIENCE


@pytest.mark.slow
def test_a_ps_that_stays_away(
    ports: list[socket.socket], datasets: Datasets, job_dir: pathlib.Path
) -> None:
    """Nobody restarts it; the chief waits as long as it is told to."""
    flags = trainer_flags(datasets.long, job_dir, *SLOW, "--task_wait_seconds=2")
    address = f"127.0.0.1:{ports[2].getsockname()[1]}"
    chief_place, worker_place, ps_place = (
        tf_config(ports, job) for job in ("chief", "worker", "ps")
    )
    for each in ports:
        each.close()
    with (
        Program(*flags, environ=worker_place),
        Program(*flags, environ=ps_place) as ps,
        Program(*flags, environ=chief_place) as chief,
    ):
        chief.see("saved ")
        os.kill(ps.pid, signal.SIGKILL)
        assert chief.finish() == 3, chief.text
    assert len(chief.errors) == 1, chief.text
    [error] = chief.errors
    assert error.startswith(
        f"error: ps 0 at {address} did not come back within 2 s (ps 0: its port "
    )
    report = read_report(job_dir)
    assert report["status"] == "failed"
    assert report["examples"]["trained"] == RECORDS


@pytest.mark.slow
def test_a_ps_that_is_asked_to_end_lets_the_chief_save(
    flags: list[str], job_dir: pathlib.Path
) -> None:
    with local_cluster(2, 2, flags) as program:
        program.see("epoch 1 of 2 trained")
        program.tasks()["ps 1"].terminate()
        program.see(r"\[ps 1\] .*ps 1 of 2 was asked to end: it serves up to 25 s more")
        program.see(r"\[chief\] .*ps 1 left, after a checkpoint; waiting")
        program.see(r"\[launcher\] ps 1 ended with exit code 143; restart 1 of 3")
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    assert {**report["examples"], "repeated": 0} == {**EXACT, "repeated": 0}
    [recovery] = report["recoveries"]
    assert recovery["records"] == 0
    assert not list((job_dir / "leaving").iterdir())


@pytest.mark.slow
def test_sigterm_to_the_launcher_saves_and_stops_everything(
    counted: list[str], job_dir: pathlib.Path
) -> None:
    records = sum(COUNTED)
    with local_cluster(1, 1, counted) as program:
        program.see("epoch 1 of 2 trained")
        tasks = program.tasks()
        program.see(r"\[chief\] .* epoch 2/2: [1-9][\d,]* of 3,000 records", len(program.lines))
        program.terminate()
        program.see(r"\[chief\] .*stopped by SIGTERM; rerun the same command to resume")
        assert program.finish() == 128 + signal.SIGTERM, program.text
        assert_gone(list(tasks.values()))
    assert program.errors == []
    report = read_report(job_dir)
    assert report["status"] == "interrupted"
    assert records < report["examples"]["trained"] < EPOCHS * records
    assert checkpoints(job_dir)[-1]["queue"]["trained"] == report["examples"]["trained"]


@pytest.mark.slow
def test_sigint_stops_one_process(counted: list[str], job_dir: pathlib.Path) -> None:
    with Program(*counted, "--mode.name=local") as program:
        program.see("epoch 1 of 2 trained")
        os.kill(program.pid, signal.SIGINT)
        assert program.finish() == 128 + signal.SIGINT, program.text
    assert "stopped by SIGINT" in program.lines[-1]
    assert read_report(job_dir)["status"] == "interrupted"


@pytest.mark.slow
def test_no_time_to_save(datasets: Datasets, job_dir: pathlib.Path) -> None:
    flags = trainer_flags(datasets.long, job_dir, *SLOW, "--mode.name=local", "--grace_seconds=0")
    with Program(*flags) as program:
        program.see("saved ")
        os.kill(program.pid, signal.SIGTERM)
        assert program.finish() == 128 + signal.SIGTERM, program.text
    report = read_report(job_dir)
    assert report["status"] == "interrupted"
    assert report["examples"]["trained"] == RECORDS


@pytest.mark.slow
def test_a_second_chief_takes_over(datasets: Datasets, job_dir: pathlib.Path) -> None:
    flags = [*trainer_flags(datasets.long, job_dir, *SLOW), "--train.epochs=50"]
    with Program(*flags, "--mode.name=local") as first:
        first.see("epoch 1 of 50 trained")
        with Program(*flags, "--mode.name=local") as second:
            second.see(r"resuming from .* records trained")
            assert first.finish() == 3, first.text
            [error] = first.errors
            pattern = r"error: another chief \(process (\d+) at .*\) has taken this --job_dir over"
            assert int(re.match(pattern, error)[1]) == second.pid
            assert read_report(job_dir)["status"] == "running"
            second.see(r"epoch \d+ of 50 trained", seen=len(second.lines))


EXPLODING = """
import dataclasses

import keras

from configs import smoke


class Exploding(smoke.Smoke):
    def optimizer(self):
        return keras.optimizers.SGD(1e30)


def get_config():
    return dataclasses.replace(smoke.get_config(), task=Exploding())
"""


@pytest.mark.parametrize("is_cluster", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_loss_that_is_not_finite(
    datasets: Datasets, job_dir: pathlib.Path, tmp_path: pathlib.Path, is_cluster: bool
) -> None:
    config = tmp_path / "exploding.py"
    config.write_text(EXPLODING)
    flags = [*trainer_flags(datasets.two_shards, job_dir), f"--config={config}"]
    with local_cluster(1, 1, flags) if is_cluster else Program(*flags) as program:
        assert program.finish() == 3, program.text
    [error] = program.errors
    place = (
        r"the loss is not finite at step \d of epoch 1, shard \S+-0000\d-of-00002.tfrecord; lower"
    )
    assert re.search(place, error), error
    report = read_report(job_dir)
    assert report["status"] == "failed"
    assert report["error"] in error
