"""Random faults at random moments; whatever they hit, the job completes and loses nothing."""

import os
import pathlib
import random

import pytest
from cluster_process import PATIENCE, Program, assert_gone, read_report, trainer_flags
from datasets_on_disk import Datasets

RECORDS, EPOCHS, BATCH = 12_000, 2, 8
WORKERS, PS = 2, 2
LAST_FAULT = 25.0  # seconds; an undisturbed job takes about as long
MOST_FAULTS = 3
AUC_TOLERANCE = 0.005
pytestmark = pytest.mark.slow
RUNS = int(os.environ.get("TFPS_CHAOS_RUNS", "3"))


def faults(seed: int) -> str:
    """One to three faults, as `--chaos` takes them."""
    draw = random.Random(seed)
    found = []
    for _ in range(draw.randint(1, MOST_FAULTS)):
        kind, job = draw.choice(["kill", "stop", "term"]), draw.choice(["chief", "worker", "ps"])
        hold = f"+{draw.uniform(1, 15):.1f}s" if kind == "stop" else ""
        index = "" if job == "chief" else ":*"
        found.append(f"{kind}:{job}{index}@{draw.uniform(1, LAST_FAULT):.2f}s{hold}")
    return ",".join(found)


def start(datasets: Datasets, job_dir: pathlib.Path, *own: str) -> Program:
    flags = trainer_flags(
        datasets.long,
        job_dir,
        f"--set=train.batch_size={BATCH}",
        f"--set=train.epochs={EPOCHS}",
        "--set=train.checkpoint_seconds=2",
        "--progress_seconds=0.2",
        eval_data=datasets.long,
    )
    own = (f"--workers={WORKERS}", f"--ps={PS}", "--max_restarts=10", *own)
    return Program(*own, "--", *flags, module="cloud.local")


@pytest.fixture(name="undisturbed", scope="module")
def undisturbed_fixture(datasets: Datasets, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The AUC of the job when nothing happens to it."""
    job_dir = tmp_path_factory.mktemp("undisturbed") / "job"
    with start(datasets, job_dir) as program:
        assert program.finish() == 0, program.text
    return float(read_report(job_dir)["metrics"]["auc"])


@pytest.mark.parametrize("seed", range(RUNS))
def test_random_faults(
    datasets: Datasets, tmp_path: pathlib.Path, undisturbed: float, seed: int
) -> None:
    job_dir, chaos = tmp_path / "job", faults(seed)
    with start(datasets, job_dir, f"--chaos={chaos}", f"--chaos_seed={seed}") as program:
        program.see("serves at")
        tasks = list(program.tasks().values())
        code = program.finish(4 * PATIENCE)
        for line in program.lines:
            if "chaos:" in line:
                print(line)
    assert_gone(tasks)
    if code in (130, 143):  # the chief was asked to end: the same command goes on
        with start(datasets, job_dir) as program:
            code = program.finish()
    assert code == 0, f"{chaos}: {program.text}"
    assert program.errors == [], chaos
    report = read_report(job_dir)
    assert report["status"] == "finished", chaos
    examples = report["examples"]
    assert (examples["trained"], examples["skipped"]) == (EPOCHS * RECORDS, 0), chaos
    # A lost worker may hold one lease and have another waiting.
    assert examples["repeated"] <= MOST_FAULTS * 2 * BATCH, chaos
    assert abs(report["metrics"]["auc"] - undisturbed) < AUC_TOLERANCE, chaos
