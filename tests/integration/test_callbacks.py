"""Callbacks of a chief that is killed: those of the next one know what it knew."""

import json
import pathlib

import pytest
from cluster_process import checkpoints, local_cluster, read_report, trainer_flags
from datasets_on_disk import Datasets

from tests import callback_job

RECORDS, EPOCHS, BATCH = 12_000, 4, 8
SLOW = (f"--train.batch_size={BATCH}", "--task.dim=2", f"--train.epochs={EPOCHS}")
COSINE = [0.01, 0.0055, 0.01, 0.00868198]  # of CosineWarmRestarts


@pytest.mark.slow
def test_a_killed_chief_loses_nothing_that_callbacks_know(
    datasets: Datasets, job_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    flags = trainer_flags(datasets.long, job_dir, *SLOW, eval_data=datasets.eval)
    flags = ["--config=tests/callback_job.py", *flags[1:], "--train.checkpoint_seconds=0.5"]
    environ = {callback_job.PATH: str(tmp_path / "heard.json")}
    with local_cluster(2, 2, flags, environ=environ) as program:
        program.see("epoch 2 of 4 trained")
        program.see("saved ", len(program.lines))  # within the third
        program.tasks()["chief 0"].kill()
        program.see(r"\[chief\] .*callbacks hear of [12] epochs that are trained already")
        assert program.finish() == 0, program.text
    assert program.errors == []
    heard = [json.loads(line) for line in (tmp_path / "heard.json").read_text().splitlines()]
    assert [line["epoch"] for line in heard] == list(range(EPOCHS))
    assert [line["lr"] for line in heard] == pytest.approx(COSINE, abs=1e-6)
    losses = [line["loss"] for line in heard]
    assert all(0 < loss < 1 for loss in losses)
    report = read_report(job_dir)
    assert [x["auc"] for x in report["evaluations"]] == [line["val_auc"] for line in heard]
    assert report["examples"]["trained"] == EPOCHS * RECORDS
    last = checkpoints(job_dir)[-1]
    assert [epoch["loss"] for epoch in last["losses"]["epochs"]] == losses
    steps = [epoch["steps"] for epoch in last["losses"]["epochs"]]
    numbers, rates = zip(*last["learning_rates"], strict=True)
    assert list(numbers) == [0, *steps[:3]]
    assert rates == pytest.approx(COSINE, abs=1e-6)
