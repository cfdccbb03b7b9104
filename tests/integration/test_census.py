"""The census job on the real data: `make census CENSUS=DIR` with adult.data and adult.test."""

import csv
import os
import pathlib
import statistics

import numpy as np
import pytest

from tests.integration.cluster_process import (
    Program,
    local_cluster,
    read_report,
    trainer_flags,
    wait_for_checkpoint,
)
from tfps.experiment.metrics import auc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif("TFPS_CENSUS" not in os.environ, reason="needs the data: make census"),
]
RECORDS, EPOCHS = 32_561, 10
CONFIG = "--config=configs/census.py"


def finish(program: Program) -> None:
    with program:
        assert program.finish() == 0, program.text


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    source = pathlib.Path(os.environ["TFPS_CENSUS"])
    directory = tmp_path_factory.mktemp("census")
    for name, shards in (("data", 8), ("test", 4)):
        flags = [f"--input={source / f'adult.{name}'}", f"--output={directory / name}"]
        finish(Program(CONFIG, *flags, f"--shards={shards}", module="trainer.prepare"))
    return directory


def flags(data: pathlib.Path, job_dir: pathlib.Path, *more: str) -> list[str]:
    common = trainer_flags(data / "data", job_dir, *more, eval_data=data / "test")
    return [CONFIG, *(flag for flag in common if not flag.startswith("--config"))]


def check(job_dir: pathlib.Path) -> dict:
    report = read_report(job_dir)
    assert report["status"] == "finished"
    assert report["examples"]["trained"] == EPOCHS * RECORDS
    assert report["examples"]["skipped"] == 0
    assert report["metrics"]["auc"] >= 0.905
    assert report["metrics"]["accuracy"] >= 0.85
    return report


def test_a_cluster_learns_it_as_well_as_one_process(
    data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    found: dict[str, list[float]] = {"cluster": [], "local": []}
    for seed in range(3):
        override = f"--train.seed={seed}"
        for mode, reports in found.items():
            job_dir = tmp_path / f"{mode}-{seed}"
            if mode == "cluster":
                finish(local_cluster(2, 2, flags(data, job_dir, override)))
            else:
                finish(Program(*flags(data, job_dir, override), "--mode.name=local"))
            reports.append(check(job_dir)["metrics"]["auc"])
    assert statistics.median(found["cluster"]) == pytest.approx(
        statistics.median(found["local"]), abs=0.005
    )
    job_dir, output = tmp_path / "cluster-0", tmp_path / "predictions.csv"
    predict = [f"--model={job_dir / 'export'}", f"--data={data / 'test'}", f"--output={output}"]
    finish(Program(*predict, module="trainer.predict"))
    with output.open() as file:
        rows = [(int(row["label"]), float(row["prediction"])) for row in csv.DictReader(file)]
    labels, predictions = map(np.array, zip(*rows, strict=True))
    assert auc(labels, predictions) == pytest.approx(found["cluster"][0], abs=1e-6)


def test_a_killed_worker_and_a_killed_chief_lose_nothing(
    data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    job_dir = tmp_path / "job"
    with local_cluster(2, 2, flags(data, job_dir)) as program:
        program.see("epoch 2 of 10 trained")
        tasks = program.tasks()
        tasks["worker 0"].suspend()  # else it has trained all before the other is back
        tasks["worker 1"].kill()
        program.see("worker 1 is back")
        wait_for_checkpoint(job_dir)
        program.tasks()["chief 0"].kill()
        tasks["worker 0"].resume()
        program.see("resuming from")
        assert program.finish() == 0, program.text
    assert check(job_dir)["resumed_from"]
