"""Random faults at random moments of the census job: it completes and loses nothing.

The data are the real ones where TFPS_CENSUS names their directory, else rows drawn like them.
"""

import dataclasses
import os
import pathlib
import random
from typing import Any

import psutil
import pytest
from census_rows import census_rows
from cluster_process import PATIENCE, Program, assert_gone, read_report, trainer_flags

CONFIG = "--config=configs/census.py"
RECORDS, EVAL_RECORDS, EPOCHS, BATCH = 32_561, 16_281, 5, 128
WORKERS, PS = 2, 2
LAST_FAULT = 30.0  # seconds; an undisturbed job takes about as long
MOST_FAULTS = 3
AUC_TOLERANCE = 0.005
CHECKPOINT_SECONDS = 2.0
LATENESS = 10.0  # seconds that a checkpoint may come later than it is due, or take
RUNS = int(os.environ.get("TFPS_CHAOS_RUNS", "3"))
SAMPLE = 18  # the seed that `make test` runs too: a killed ps


@dataclasses.dataclass(frozen=True)
class Disturbance:
    """What one run is put through.

    Attributes:
        chaos: One to three faults, as `--chaos` takes them.
        evaluator: Whether the job has an evaluator, which is as likely to be hit as any other job.
    """

    chaos: str
    evaluator: bool

    @classmethod
    def drawn(cls, seed: int) -> "Disturbance":
        """Draws one."""
        draw = random.Random(seed)
        jobs = ["chief", "worker", "ps", "evaluator"][: 3 + seed % 2]
        found = []
        for _ in range(draw.randint(1, MOST_FAULTS)):
            kind, job = draw.choice(["kill", "stop", "term"]), draw.choice(jobs)
            hold = f"+{draw.uniform(1, 15):.1f}s" if kind == "stop" else ""
            index = "" if job == "chief" else ":*"
            found.append(f"{kind}:{job}{index}@{draw.uniform(1, LAST_FAULT):.2f}s{hold}")
        return cls(",".join(found), "evaluator" in jobs)


@dataclasses.dataclass(frozen=True)
class Job:
    """The census job on a local cluster, which may be started more than once."""

    data: pathlib.Path
    job_dir: pathlib.Path

    def start(self, *own: str) -> Program:
        """Starts it with further flags of the launcher."""
        flags = trainer_flags(
            self.data / "train",
            self.job_dir,
            f"--set=train.epochs={EPOCHS}",
            f"--set=train.checkpoint_seconds={CHECKPOINT_SECONDS}",
            "--progress_seconds=0.2",
            eval_data=self.data / "eval",
        )
        flags[0] = CONFIG
        own = (f"--workers={WORKERS}", f"--ps={PS}", "--max_restarts=10", *own)
        return Program(*own, "--", *flags, module="cloud.local")

    def processes(self) -> list[psutil.Process]:
        """Those that run for it, whoever started them."""
        found = psutil.process_iter(["cmdline"])
        return [x for x in found if f"--job_dir={self.job_dir}" in (x.info["cmdline"] or ())]


@pytest.fixture(name="data", scope="module")
def data_fixture(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("census")
    for seed, (name, records, file) in enumerate(
        [("train", RECORDS, "adult.data"), ("eval", EVAL_RECORDS, "adult.test")]
    ):
        rows = directory / file
        if "TFPS_CENSUS" in os.environ:
            rows = pathlib.Path(os.environ["TFPS_CENSUS"]) / file
        else:
            rows.write_bytes(census_rows(records, seed))
        flags = [CONFIG, f"--input={rows}", f"--output={directory / name}", "--shards=4"]
        with Program(*flags, module="trainer.prepare") as program:
            assert program.finish() == 0, program.text
    return directory


@pytest.fixture(name="undisturbed", scope="module")
def undisturbed_fixture(data: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The AUC of the job when nothing happens to it."""
    job = Job(data, tmp_path_factory.mktemp("undisturbed") / "job")
    with job.start() as program:
        assert program.finish() == 0, program.text
    return float(read_report(job.job_dir)["metrics"]["auc"])


@pytest.mark.timeout(6 * PATIENCE)
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=() if seed == SAMPLE else pytest.mark.slow)
        for seed in sorted({*range(RUNS), SAMPLE})
    ],
)
def test_random_faults(
    data: pathlib.Path, tmp_path: pathlib.Path, undisturbed: float, seed: int
) -> None:
    drawn, job = Disturbance.drawn(seed), Job(data, tmp_path / "job")
    own = ["--evaluator"] * drawn.evaluator
    with job.start(*own, f"--chaos={drawn.chaos}", f"--chaos_seed={seed}") as program:
        code = program.finish(4 * PATIENCE)
    assert_gone(job.processes())
    lines = program.lines
    if code in (130, 143):  # the chief was asked to end: the same command goes on
        with job.start(*own) as program:
            code = program.finish()
        lines += program.lines
    text = "\n".join(lines)
    assert code == 0, text
    assert program.errors == [], text
    assert "damaged" not in text  # nothing half written was ever taken for a checkpoint
    check(read_report(job.job_dir), drawn.chaos, undisturbed)
    print(f"seed {seed}: {drawn}", *(line for line in lines if "chaos:" in line), sep="\n  ")


def check(report: dict[str, Any], chaos: str, undisturbed: float) -> None:
    examples = report["examples"]
    assert report["status"] == "finished", chaos
    assert (examples["trained"], examples["skipped"]) == (EPOCHS * RECORDS, 0), chaos
    assert report["passed_over"] == {}, chaos
    # A lost worker may hold one lease and have another waiting.
    depth = max(1, report["pipeline_depth"])
    assert examples["repeated"] <= MOST_FAULTS * 2 * BATCH * depth, chaos
    most = (CHECKPOINT_SECONDS + LATENESS) * report["examples_per_second"]
    for recovery in report["recoveries"]:
        assert recovery["records"] <= most, (chaos, recovery)
    assert abs(report["metrics"]["auc"] - undisturbed) < AUC_TOLERANCE, chaos
