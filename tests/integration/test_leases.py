"""What a cluster's leases promise: nothing is left out, nobody waits. Minutes; `make slow`."""

import pathlib
import random
import time

import numpy as np
import pytest
from cluster_process import Program, local_cluster, read_report
from counting_job import flags, trained

from tests import counting_task

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


LONG = 600  # seconds that a run may take on a busy machine
BATCH, EPOCHS = 100, 2
SIZES = (9000, 1, 4567, 333, 12_345, 6000, 315)
KILLS_BEFORE, KILLS_AFTER = 3, 2  # the chief's own


def test_every_record_is_trained_once_per_epoch_whoever_dies(tmp_path: pathlib.Path) -> None:
    """Proven by the model: a table's rows count how often each record was trained."""
    task = counting_task.CountingTask(records=sum(SIZES), step_seconds=0.4)
    data = counting_task.write(tmp_path / "data", task, SIZES)
    job_dir = tmp_path / "job"
    settings = {"epochs": EPOCHS, "checkpoint_seconds": 5, "keep_checkpoints": 1000}
    argv = flags(data, job_dir, task, *(f"--train.{n}={x}" for n, x in settings.items()))
    draw = random.Random(4)
    victims = draw.sample([0, 0, 1, 1, 2, 2], KILLS_BEFORE + KILLS_AFTER)
    with local_cluster(3, 2, argv) as program:
        for worker in victims[:KILLS_BEFORE]:
            kill_worker(program, worker, draw)
        program.see(r"\[chief\] .*saved ")  # killed before that, the chief would begin again
        time.sleep(draw.uniform(1, 5))
        program.tasks()["chief 0"].kill()
        program.see("resuming from")  # the launcher restarts it
        for worker in victims[KILLS_BEFORE:]:
            kill_worker(program, worker, draw)
        assert program.finish(LONG) == 0, program.text
    report = read_report(job_dir)
    repeated = report["examples"].pop("repeated")
    records = sum(SIZES)
    exact = {"per_epoch": records, "trained": EPOCHS * records, "skipped": 0, "bad": 0}
    assert report["examples"] == exact

    after_first, after_all = (trained(data, task, job_dir, epoch) for epoch in (1, 2))
    pairs = np.sum(after_first >= 1) + np.sum(after_all - after_first >= 1)
    assert pairs == EPOCHS * records == 65_122
    more = int(after_all.sum()) - EPOCHS * records
    print(f"trained more than once: {more} records; the report says at most {repeated}")
    assert 0 <= more <= repeated <= BATCH * len(victims)


def kill_worker(program: Program, worker: int, draw: random.Random) -> None:
    """Kills a worker at a random moment of the training; returns when it is back."""
    program.see(r"\[chief\] .*connected to")
    time.sleep(draw.uniform(3, 8))
    seen = len(program.lines)
    program.tasks()[f"worker {worker}"].kill()
    program.see(rf"\[chief\] .*worker {worker} is back after", seen)


def see_trained(program: Program, records: int) -> int:
    """Waits until more records than these are trained; returns how many are."""
    total = sum(SIZES)
    while True:
        found = program.see(r"\[chief\] .* epoch (\d)/\d: ([\d,]+) of ", len(program.lines))
        trained = (int(found[1]) - 1) * total + int(found[2].replace(",", ""))
        if trained > records:
            return trained


def test_a_worker_that_was_stopped_and_goes_on_soon_leaves_the_lease_that_another_has(
    tmp_path: pathlib.Path,
) -> None:
    """Its lease is of 5 seconds; what it trains of it after the other began is counted."""
    task = counting_task.CountingTask(records=sum(SIZES), step_seconds=0.1)
    data = counting_task.write(tmp_path / "data", task, SIZES)
    job_dir = tmp_path / "job"
    settings = {"epochs": EPOCHS, "checkpoint_seconds": 5, "keep_checkpoints": 1000}
    own = (f"--train.{n}={x}" for n, x in settings.items())
    argv = flags(data, job_dir, task, *own, "--progress_seconds=1")
    with local_cluster(2, 1, argv) as program:
        see_trained(program, 5000)
        seen = len(program.lines)
        worker = program.tasks()["worker 1"]
        worker.suspend()
        program.see(r"\[chief\] .*worker 1 at .* is lost: it did not answer", seen)
        see_trained(program, see_trained(program, 0) + 10_000)  # the other one has gone far on
        worker.resume()
        program.see(r"\[chief\] .*worker 1 is back after", seen)
        assert program.finish(LONG) == 0, program.text
    examples = read_report(job_dir)["examples"]
    more = int(trained(data, task, job_dir, EPOCHS).sum()) - EPOCHS * sum(SIZES)
    print(f"trained more than once: {more} records; the report says at most {examples['repeated']}")
    assert examples["skipped"] == 0
    loop = 10 + 9  # steps in one turn of the closure's loop, and after the last one
    assert 0 <= more <= examples["repeated"] <= BATCH * (loop + 3)


@pytest.mark.alone
def test_equal_workers_get_equal_shares(tmp_path: pathlib.Path) -> None:
    """10,000 batches over 10 workers."""
    task = counting_task.CountingTask(records=100_000, step_seconds=0.1)
    data = counting_task.write(tmp_path / "data", task, [25_000] * 4)
    job_dir = tmp_path / "job"
    argv = flags(data, job_dir, task, "--train.batch_size=10", "--train.epochs=1")
    with local_cluster(10, 1, argv) as program:
        assert program.finish(LONG) == 0, program.text
    report = read_report(job_dir)
    shares = [share["records"] / 10 for share in report["workers"]]
    print(f"batches of each worker: {shares}")
    assert sum(shares) == report["steps"] == 10_000
    assert all(950 <= share <= 1050 for share in shares)


@pytest.mark.alone
def test_one_large_shard_keeps_all_workers_busy(tmp_path: pathlib.Path) -> None:
    """400 MB for 4 workers."""
    task = counting_task.CountingTask(records=100_000, payload=1000, step_seconds=0.4)
    data = counting_task.write(tmp_path / "data", task, [100_000])
    assert data.bytes > 400e6
    job_dir = tmp_path / "job"
    argv = flags(data, job_dir, task, "--train.epochs=1")
    with local_cluster(4, 1, argv) as program:
        assert program.finish(LONG) == 0, program.text
    workers = read_report(job_dir)["workers"]
    print(f"workers: {workers}")
    assert len(workers) == 4
    for share in workers:
        assert share["records"] > 0.2 * 100_000
        span = share["seconds"] + share["idle_seconds"]  # from its first lease to its last
        assert share["idle_seconds"] < 0.05 * (span - 5.0)  # of five seconds is the last lease
