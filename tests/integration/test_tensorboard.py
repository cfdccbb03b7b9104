"""A run whose tasks are lost, as TensorBoard itself shows it."""

import itertools
import pathlib

import pytest
from census_rows import census_rows
from cluster_process import Program, local_cluster, read_report, trainer_flags
from tensorboard_program import TensorBoard, tensorboard

from tfps.job_dir import JobDir
from tfps.monitoring import recorder
from tfps.monitoring.events import CheckpointSaved, Evaluated, Sampled, TaskBack, TaskLost

EPOCHS = 4
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(name="flags", scope="module")
def flags_fixture(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    directory = tmp_path_factory.mktemp("census")
    for seed, (name, count) in enumerate([("train", 20_000), ("eval", 4000)]):
        rows = directory / f"{name}.csv"
        rows.write_bytes(census_rows(count, seed))
        flags = [f"--input={rows}", f"--output={directory / name}", "--shards=4"]
        with Program("--config=configs/census.py", *flags, module="trainer.prepare") as program:
            assert program.finish() == 0, program.text
    settings = {"batch_size": 32, "epochs": EPOCHS, "checkpoint_seconds": 2}
    own = (f"--train.{name}={value}" for name, value in settings.items())
    made = trainer_flags(directory / "train", directory / "job", *own, eval_data=directory / "eval")
    often = ("--sample_seconds=0.5", "--progress_seconds=0.2")
    return ["--config=configs/census.py", *made[1:], *often]


@pytest.fixture(name="job_dir", scope="module")
def job_dir_fixture(flags: list[str]) -> pathlib.Path:
    """Of a run that lost a worker, a ps and its chief."""
    [job_dir] = [flag.removeprefix("--job_dir=") for flag in flags if "--job_dir" in flag]
    with local_cluster(2, 2, flags) as program:
        program.see(r"\[chief\] .*saved ")
        program.tasks()["worker 1"].kill()
        program.see(r"\[chief\] .*worker 1 is back after")
        program.see(r"\[chief\] .* epoch 2/")
        program.tasks()["ps 0"].kill()
        program.see(r"\[chief\] .*resuming from")
        program.see(r"\[chief\] .* epoch 3/")
        program.tasks()["chief 0"].kill()
        assert program.finish() == 0, program.text
    return pathlib.Path(job_dir)


def assert_shows(board: TensorBoard, job_dir: pathlib.Path) -> None:
    report = read_report(job_dir)
    for run in ("train", "validation"):
        board.wait_for(run)
    tags = board.tags()
    for run, names in tags.items():
        for name in names:
            steps = [step for _, step, _ in board.curve(run, name)]
            assert steps == sorted(set(steps)), (run, name, steps)
    for name, value in report["metrics"].items():
        by_epoch = board.curve("validation", f"epoch_{name}")
        rows = report["evaluations"]
        assert [(step, shown) for _, step, shown in by_epoch] == [
            (row["epoch"] - 1, pytest.approx(row[name], rel=1e-6)) for row in rows
        ]
        by_steps = board.curve("validation", f"evaluation_{name}_vs_iterations")
        assert [step for _, step, _ in by_steps] == [row["steps"] for row in rows]
        assert by_steps[-1][2] == pytest.approx(value, rel=1e-6)
    [group] = board.session_groups()
    assert group["hparams"]["train.batch_size"] == 32.0
    assert [session["status"] for session in group["sessions"]] == ["STATUS_SUCCESS"]
    losses = [value for *_, value in board.curve("train", "epoch_loss")]
    assert len(losses) == EPOCHS
    assert losses[-1] < losses[0]
    assert board.curve("train", "batch_loss")[-1][1] <= report["steps"]
    assert board.curve("train", "tfps/lost_worker")
    assert {"epoch_learning_rate", "epoch_steps_per_second", "batch_steps_per_second"} <= tags[
        "train"
    ]


@pytest.mark.parametrize("fast", [True, False], ids=["data server", "python"])
def test_tensorboard_draws_each_curve_once(job_dir: pathlib.Path, fast: bool) -> None:
    with tensorboard(job_dir / "tensorboard", fast) as board:
        assert_shows(board, job_dir)


def test_the_history_tells_of_what_happened(job_dir: pathlib.Path) -> None:
    report, events = read_report(job_dir), recorder.read(JobDir(job_dir))
    lost = {event.task for event in events if isinstance(event, TaskLost)}
    assert {"worker 1", "ps 0"} <= lost
    assert "worker 1" in {event.task for event in events if isinstance(event, TaskBack)}
    evaluated = [event for event in events if isinstance(event, Evaluated)]
    assert [(each.epoch, each.steps, each.metrics) for each in evaluated] == [
        (row.pop("epoch"), row.pop("steps"), row) for row in report["evaluations"]
    ]
    saved = [event.name for event in events if isinstance(event, CheckpointSaved)]
    assert report["checkpoint"].endswith(saved[-1])
    samples = [event for event in events if isinstance(event, Sampled)]
    assert all(a.at <= b.at for a, b in itertools.pairwise(samples))
    assert samples[-1].examples <= report["examples"]["trained"]
