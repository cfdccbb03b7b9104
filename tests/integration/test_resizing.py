"""Runs whose numbers of workers and ps change while they train."""

import os
import pathlib
import random

import numpy as np
import pytest
from cluster_process import (
    Program,
    assert_gone,
    checkpoints,
    local_cluster,
    read_report,
    trainer_flags,
    wait_for_checkpoint,
    wait_until,
)
from datasets_on_disk import Datasets
from launcher_fixtures import start_fixture, write_fixture  # noqa: F401

from tests import settled
from tests.loaded import client, started
from tfps.checkpoint.saved_values import named_checkpoint
from trainer.chief.checkpoint_export import export_checkpoint

EPOCHS, LONG = 2, 12_000
CHANGES = int(os.environ.get("TFPS_CHANGES", "0"))  # of one run, with as many kills
SOON = ("--train.batch_size=8", "--train.checkpoint_seconds=0.5")
ASKED_FOR_NONE = "asked for 1 worker; a training saves first\nerror: {}: a run with ps needs one\n"
RUNS = """
    runs = sorted(int(name) for name in os.listdir({root!r}) if name.isdigit())
    open(f"{root}/{{len(runs)}}", "w").close()
    size = {{job: len(some) for job, some in config["cluster"].items()}}
    say("run", len(runs), size.get("worker"), size.get("ps"))
    left, code = {ends}[len(runs)]
    if left:
        with open(os.environ["TFPS_NEW_SIZE"], "w") as file:
            json.dump(left, file)
    sys.exit(code)
"""


def acting(write, root: pathlib.Path, *ends: tuple[list[int], int]) -> None:
    """A chief that asks for a size, and ends with a code, in each of its runs."""
    root.mkdir()
    body = RUNS.format(root=str(root), ends=list(ends))
    write(f"if job != 'chief':\n    serve()\nelse:{body}")


def runs(launcher) -> list[str]:
    return [line.partition("run ")[2] for line in launcher.lines if "[chief] run " in line]


def test_the_launcher_starts_what_the_chief_asks_for(write, start, tmp_path):
    acting(write, tmp_path / "runs", ([3, 1], 75), ([1, 2], 75), ([], 0))
    launcher = start("--workers=2", "--ps=1")
    assert launcher.finish() == 0
    assert runs(launcher) == ["0 2 1", "1 3 1", "2 1 2"]
    said = "[launcher] the run has another size: beginning again with 3 workers and 1 ps, of 2"
    assert said in launcher.text
    assert "exit code 75" not in launcher.text


def test_it_goes_back_once_where_the_run_cannot_have_that(write, start, tmp_path):
    acting(write, tmp_path / "runs", ([3, 1], 75), ([], 2), ([], 2))
    launcher = start("--workers=2", "--ps=1")
    assert launcher.finish() == 2
    assert runs(launcher) == ["0 2 1", "1 3 1", "2 2 1"]
    said = "the run cannot have 3 workers and 1 ps: going back to 2 workers and 1 ps"
    assert f"[launcher] {said}" in launcher.text


def test_a_chief_that_says_no_size_ends_the_run(write, start, tmp_path):
    acting(write, tmp_path / "runs", ([], 75))
    launcher = start("--workers=2", "--ps=1")
    assert launcher.finish() == 3
    error = launcher.process.stderr.read().decode()
    assert error.startswith("error: the chief ended with 75, but has left no ")


def resize(job_dir: pathlib.Path, workers: int, ps: int) -> tuple[int, str]:
    """Exit code, and what it says."""
    flags = (f"--job_dir={job_dir}", f"--workers={workers}", f"--ps={ps}", "--wait_seconds=110")
    done = client.run("trainer.resize", *flags, timeout=150.0)
    return done.returncode, done.stdout + done.stderr


def check(job_dir: pathlib.Path, workers: int, ps: int) -> None:
    """All is trained once, at last with so many tasks."""
    assert_gone(list(started.processes_with(f"--job_dir={job_dir}")))
    report = read_report(job_dir)
    counts = {name: report["examples"][name] for name in ("trained", "skipped", "bad")}
    assert counts == {"trained": EPOCHS * LONG, "skipped": 0, "bad": 0}
    assert (report["status"], report["cluster"]) == ("finished", {"workers": workers, "ps": ps})


@pytest.mark.slow
def test_a_run_gets_other_numbers_of_workers_and_ps(
    datasets: Datasets, job_dir: pathlib.Path
) -> None:
    with local_cluster(1, 1, trainer_flags(datasets.long, job_dir, *SOON)) as program:
        wait_for_checkpoint(job_dir)
        assert resize(job_dir, 1, 0) == (2, ASKED_FOR_NONE.format(job_dir))
        code, said = resize(job_dir, 2, 2)
        assert code == 0, said
        assert "the run has begun with 2 workers and 2 ps, after " in said
        resumed = program.see(r"resuming from .*: (\S+) records trained")[1]
        assert program.finish() == 0, program.text
    assert int(resumed.replace(",", "")) > 0
    check(job_dir, 2, 2)
    code, said = resize(job_dir, 1, 1)
    assert code == 2
    assert f"{job_dir}: the run is finished; start it with other numbers" in said


@pytest.mark.slow
def test_what_cannot_be_is_answered_at_once(datasets: Datasets, job_dir: pathlib.Path) -> None:
    flags = trainer_flags(datasets.long, job_dir, *SOON, "--mode.name=local")
    with Program(*flags) as program:
        program.see("ready to train")
        code, said = resize(job_dir, 2, 2)
        assert code == 2
        assert "what has started this run cannot change its size: end it, and start it" in said
        program.terminate()
        assert program.finish() == 143
    code, said = resize(job_dir.parent, 1, 1)
    assert code == 2
    assert "has no report.json; name the directory of a job that runs" in said


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_changes_between_kills(
    datasets: Datasets, job_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """`TFPS_CHANGES=20` has the numbers change so often, a task killed about each time.

    What the parameters are when they have ceased to change, they are after each change.
    """
    rng = random.Random(CHANGES)
    more = (f"--train.epochs={4 + 4 * CHANGES}", "--train.keep_checkpoints=100000")
    flags = trainer_flags(datasets.long, job_dir, *SOON, *more)
    flags[0] = "--config=tests/settled.py"
    size = (1, 1)
    with local_cluster(*size, flags) as program:
        wait_for_checkpoint(job_dir)
        wait_for_steps(job_dir, settled.SETTLED)
        saved = [newest_path(job_dir)]
        for _ in range(CHANGES or 2):
            name, task = rng.choice(sorted(program.tasks().items()))
            seen = len(program.lines)
            task.kill()
            program.see(rf"{name} was killed|{name.removesuffix(' 0')} was killed", seen)
            while (wanted := (rng.randint(1, 3), rng.randint(1, 3))) == size:
                pass
            code, said = resize(job_dir, *wanted)
            assert code == 0, said
            size = wanted
            wait_for_steps(job_dir, checkpoints(job_dir)[-1]["steps"])
            saved.append(newest_path(job_dir))
        program.terminate()
        assert program.finish() == 143, program.text
    examples = read_report(job_dir)["examples"]
    assert (examples["skipped"], examples["bad"]) == (0, 0)
    found = [
        trainable(path, tmp_path / f"{number}.weights.h5") for number, path in enumerate(saved)
    ]
    for each in found:
        assert all(np.array_equal(each[name], values) for name, values in found[0].items())


def newest_path(job_dir: pathlib.Path) -> pathlib.Path:
    return sorted(job_dir.glob("checkpoints/*/commit.json"))[-1].parent


def wait_for_steps(job_dir: pathlib.Path, steps: int) -> None:
    """Waits for a checkpoint with more steps."""
    wait_until(lambda: checkpoints(job_dir)[-1]["steps"] > steps)


def trainable(checkpoint: pathlib.Path, output: pathlib.Path) -> dict[str, np.ndarray]:
    """The trainable weights of a checkpoint's model by name."""
    experiment = settled.get_config()
    export_checkpoint(experiment, named_checkpoint(str(checkpoint)), str(output), form="weights")
    model = experiment.task.build_model()
    model.load_weights(output)
    return {each.path: each.numpy() for each in model.trainable_variables}
