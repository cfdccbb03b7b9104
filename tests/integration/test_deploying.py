"""A job that deploys its model."""

import pathlib

import pytest
from cluster_process import Program, read_report, trainer_flags
from datasets_on_disk import Datasets


def run(datasets: Datasets, job_dir: pathlib.Path, *flags: str) -> tuple[int, str]:
    own = trainer_flags(datasets.uneven, job_dir, *flags, eval_data=datasets.eval)
    with Program(*own) as program:
        return program.finish(), program.text


@pytest.mark.slow
def test_a_job_deploys_what_it_has_exported(datasets: Datasets, job_dir: pathlib.Path) -> None:
    to = f"--deploy_to=--target=tfserving --name=smoke --output={job_dir}/served"
    code, text = run(datasets, job_dir, to, "--train.export_if=auc>=0.99999")
    assert code == 0, text
    assert "but train.export_if=auc>=0.99999: the model is exported to" in text
    assert "not deployed: " in text.splitlines()[-1]
    assert not (job_dir / "served").exists()

    code, text = run(datasets, job_dir, to, "--train.export_if=auc>=0.1,loss<10")
    assert code == 0, text
    assert 'name: "smoke"' in (job_dir / "served" / "models.config").read_text()
    assert f"deploying {read_report(job_dir)['export']}" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--deploy_to=--target=moon"], "--deploy_to=--target=moon: "),
        (
            ["--deploy_to=--target=tfserving", "--job=evaluate", "--checkpoint=c", "--data=d"],
            "--deploy_to is for a job that trains, not --job=evaluate",
        ),
    ],
)
def test_flags_that_deploy_nothing_are_refused(flags: list[str], message: str) -> None:
    with Program("--config=configs/smoke.py", "--job_dir=runs/job", *flags) as program:
        assert program.finish() == 2
    assert message in program.text
