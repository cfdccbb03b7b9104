"""Two jobs: one trains and leaves evaluating to the other, which has ps of its own."""

import pathlib

import pytest
from cluster_process import Program, assert_gone, local_cluster, read_report, trainer_flags
from datasets_on_disk import Datasets
from test_evaluator import assert_evaluated, assert_measured_alike, evaluations

CONFIG = "--config=configs/smoke.py"
pytestmark = pytest.mark.slow


def training_flags(datasets: Datasets, job_dir: pathlib.Path, *more: str) -> list[str]:
    return trainer_flags(
        datasets.long, job_dir, "--train.evaluator_job=true", *more, eval_data=datasets.eval
    )


def following_flags(datasets: Datasets, job_dir: pathlib.Path) -> list[str]:
    own = [f"--checkpoint={job_dir}", f"--data={datasets.eval}", f"--job_dir={job_dir}/evaluator"]
    return [CONFIG, "--job=evaluate", "--follow", *own]


def test_a_job_with_ps_of_its_own_evaluates_what_another_trains(
    datasets: Datasets, job_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The one that follows begins first, and has other numbers of workers and ps."""
    with local_cluster(1, 2, following_flags(datasets, job_dir)) as follower:
        follower.see(r"has not begun: waiting up to 600 s for it to run")
        with local_cluster(2, 1, training_flags(datasets, job_dir)) as trained:
            assert trained.finish() == 0, trained.text
        tasks = follower.tasks()
        assert follower.finish() == 0, follower.text
        assert_gone(list(tasks.values()))
    found = assert_evaluated(job_dir, epochs=2)
    assert "the workers do it" not in trained.text
    assert "waiting for the job of --train.evaluator_job=true to evaluate" in trained.text
    assert "the job is done, and its last checkpoint evaluated" in follower.text
    report = read_report(job_dir / "evaluator")
    assert (report["status"], report["metrics"]) == ("finished", found[-1]["metrics"])
    assert_measured_alike(datasets, job_dir, found[-1], tmp_path / "alone")


@pytest.mark.parametrize("victim", ["ps 1", "worker 0", "chief 0"])
def test_the_job_that_follows_goes_on_whoever_of_it_dies(
    datasets: Datasets, job_dir: pathlib.Path, victim: str
) -> None:
    flags = training_flags(
        datasets, job_dir, "--train.batch_size=8", "--train.checkpoint_seconds=1"
    )
    with (
        local_cluster(1, 1, flags) as trained,
        local_cluster(1, 2, following_flags(datasets, job_dir)) as follower,
    ):
        follower.see(r"evaluated \S+ after epoch 0 ")
        first = {x["checkpoint"]: x["seconds"] for x in evaluations(job_dir)}
        follower.tasks()[victim].kill()
        assert trained.finish() == 0, trained.text
        assert follower.finish() == 0, follower.text
    found = {x["checkpoint"]: x["seconds"] for x in assert_evaluated(job_dir, epochs=2)}
    assert {name: found[name] for name in first} == first  # none was evaluated again
    assert "the workers do it" not in trained.text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--job=predict", "--follow", "--checkpoint=c", "--data=d"],
            "--follow is for --job=evaluate; leave it out",
        ),
        (["--follow"], "--follow is for --job=evaluate or predict; leave it out"),
    ],
)
def test_following_is_for_evaluating(flags: list[str], message: str) -> None:
    with Program(CONFIG, "--job_dir=runs/job", *flags) as program:
        assert program.finish() == 2
    assert message in program.text


def test_one_checkpoint_cannot_be_followed(datasets: Datasets, job_dir: pathlib.Path) -> None:
    with Program(*trainer_flags(datasets.uneven, job_dir)) as program:
        assert program.finish() == 0, program.text
    path = sorted(job_dir.glob("checkpoints/*"))[-1]
    own = [f"--checkpoint={path}", f"--data={datasets.eval}", f"--job_dir={job_dir}/evaluator"]
    with Program(CONFIG, "--job=evaluate", "--follow", *own) as program:
        assert program.finish() == 2
    assert f"--checkpoint={path} is one checkpoint: --follow needs the directory" in program.text
