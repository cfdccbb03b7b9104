"""A model with a large part that is not trained, on a cluster that resumes from a checkpoint."""

import pathlib

import pytest
from cluster_process import Program, local_cluster, read_report, trainer_flags
from datasets_on_disk import Datasets

CONFIG = "--config=tests/frozen_backbone.py"


@pytest.mark.slow
def test_a_worker_keeps_the_checkpoints_values(datasets: Datasets, tmp_path: pathlib.Path) -> None:
    """The run that continues makes a model with another backbone, which must not be used."""
    job = tmp_path / "job"
    flags = trainer_flags(datasets.two_shards, job, CONFIG, eval_data=datasets.eval)
    for more in (
        ["--train.epochs=1"],
        ["--train.epochs=2", "--task.backbone_seed=7"],
    ):
        with local_cluster(2, 2, [*flags, *more]) as cluster:
            assert cluster.finish() == 0, cluster.text
    report = read_report(job)
    assert report["examples"]["trained"] == 2 * 151
    # What the workers have evaluated with is what the ps hold.
    argv = [f"--model={report['export']}", f"--data={datasets.eval}"]
    argv.append(f"--output={tmp_path / 'p.csv'}")
    with Program(*argv, module="trainer.predict") as program:
        assert program.finish() == 0, program.text
    [shown] = [line for line in program.lines if line.startswith("AUC: ")]
    assert float(shown.split()[1]) == pytest.approx(report["metrics"]["auc"], abs=1e-6)
