"""A worker killed at random moments, some times in every mode: nothing is skipped."""

import os
import pathlib
import random
import time

import pytest
from cluster_process import Program, local_cluster, read_report
from counting_job import flags, trained

from tests import counting_task

SEEDS = int(os.environ.get("TFPS_KILLS", "8")) // 8  # `make kills` says how many kills
LONG = 300  # seconds that a run may take on a busy machine
BATCH, STEP_SECONDS = 50, 0.3
SIZES = (1000, 450, 1, 1549)
RECORDS = sum(SIZES)
LATEST_KILL = RECORDS / BATCH * STEP_SECONDS / 2  # two workers cannot be faster
MODES = {
    "async": (),
    "async, one ps": (),
    "async, together": ("--mode.batches_per_exchange=3",),
    "async, together, one ps": ("--mode.batches_per_exchange=3",),
    "sync": ("--mode.round_seconds=2",),
    "bounded": ("--mode.max_staleness=4", "--mode.round_seconds=2"),
    "local_sgd": ("--mode.sync_every=4",),
    "allreduce": (),
}


def cluster(mode: str, argv: list[str]) -> Program:
    """Two tasks that compute; without ps the chief is one of them."""
    if mode == "allreduce":
        return local_cluster(1, 0, argv)
    return local_cluster(2, 1 if mode.endswith("one ps") else 2, argv)


@pytest.mark.slow
@pytest.mark.timeout(2 * LONG)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_worker(mode: str, seed: int, tmp_path: pathlib.Path) -> None:
    draw = random.Random(seed)
    task = counting_task.CountingTask(records=RECORDS, step_seconds=STEP_SECONDS)
    data = counting_task.write(tmp_path / "data", task, SIZES)
    job_dir = tmp_path / "job"
    settings = (
        f"--mode.name={mode.partition(',')[0]}",
        f"--train.batch_size={BATCH}",
        "--train.epochs=1",
    )
    with cluster(mode, flags(data, job_dir, task, *settings, *MODES[mode])) as program:
        program.see(r"\[chief\] .*(connected to|together with)")
        time.sleep(draw.uniform(0.0, LATEST_KILL))
        tasks = {name: task for name, task in program.tasks().items() if "worker" in name}
        tasks[draw.choice(sorted(tasks))].kill()
        assert program.finish(LONG) == 0, program.text
    assert "was killed by SIGKILL" in program.text
    report = read_report(job_dir)
    counts = {name: report["examples"][name] for name in ("trained", "skipped", "bad")}
    assert counts == {"trained": RECORDS, "skipped": 0, "bad": 0}
    assert (trained(data, task, job_dir, 1) > 0).all()
