"""Searches whose jobs are small programs that report what a formula says."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from tests.project import ROOT
from tfps.errors import UserError

optuna = pytest.importorskip("optuna")
PATIENCE = 110.0
STUDY = """
import optuna
from cloud.tuning.study import Study

def suggest(trial):
    return {"task.x": trial.suggest_float("x", -1, 1), "task.y": trial.suggest_int("y", 0, 9)}

def get_study():
    return Study(suggest, "score"OPTIONS)
"""
# A job: two evaluations, then its end; one that is asked to end says so.
ACTING = """
import json, os, pathlib, sys, time
given = dict(each.lstrip("-").split("=", 1) for each in sys.argv[1:])
job_dir = pathlib.Path(given["job_dir"])
job_dir.mkdir(parents=True, exist_ok=True)
with (job_dir / "begun").open("a") as file:
    file.write(f"{given['task.x']} {given['task.y']}\\n")
score = 1 - float(given["task.x"]) ** 2 - (int(given["task.y"]) - 4) ** 2
rows = []
for epoch in (1, 2):
    value = float(given.get("score", score - 1 / epoch))
    rows.append({"epoch": epoch, "steps": 10 * epoch, "score": value, "loss": 1.0})
    part = job_dir / "part"
    part.write_text(json.dumps({"evaluations": rows}))
    part.rename(job_dir / "report.json")
    time.sleep(float(given.get("seconds", 0)))
sys.exit(int(given.get("code", 0)))
"""


class Tuning:
    """A user's directory, and the program started there."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.write_study()
        (directory / "acting.py").write_text(ACTING)

    def write_study(self, options: str = "") -> None:
        (self.directory / "study.py").write_text(STUDY.replace("OPTIONS", options))

    def start(self, *own: str, arguments: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        job = ["--target", "local", "--module=acting", f"--log_dir={self.directory}/logs"]
        tasks = [f"--job_dir={self.directory}/job", *arguments]
        command = [sys.executable, "-m", "cloud.tune", *job, "--study=study.py", *own, "--", *tasks]
        return subprocess.Popen(
            command,
            cwd=self.directory,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{self.directory}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *own: str, arguments: tuple[str, ...] = ()) -> tuple[int, str, str]:
        process = self.start(*own, arguments=arguments)
        out, error = process.communicate(timeout=PATIENCE)
        return process.returncode, out, error

    def begun(self) -> dict[str, list[str]]:
        """What each trial's job was started with, each time."""
        found = sorted((self.directory / "job" / "trials").glob("*/begun"))
        return {path.parent.name: path.read_text().splitlines() for path in found}


@pytest.fixture(name="tuning")
def tuning_fixture(tmp_path: pathlib.Path) -> Tuning:
    return Tuning(tmp_path)


def test_trials_are_jobs_and_the_best_one_s_fields_are_kept(tuning: Tuning) -> None:
    code, out, error = tuning.run("--trials=5", "--parallel=2")
    assert code == 0, error
    begun = tuning.begun()
    assert list(begun) == [f"{number:04}" for number in range(5)]
    assert all(len(times) == 1 for times in begun.values())

    def score(number: str) -> float:
        x, y = begun[number][0].split()
        return 0.5 - float(x) ** 2 - (int(y) - 4) ** 2

    best = max(begun, key=score)
    x, y = begun[best][0].split()
    kept = (tuning.directory / "job/best.flags").read_text()
    assert kept == f"--task.x={x}\n--task.y={y}\n"
    table = out.partition("\ntrial  state")[2].splitlines()
    assert table[0].split()[0] == "score"
    assert table[1].split() == [str(int(best)), "complete", f"{score(best):.6g}", *fields(x, y)]
    code, out, _ = tuning.run("--trials=6")
    assert code == 0
    assert len(tuning.begun()) == 6


def fields(x: str, y: str) -> list[str]:
    return [f"task.x={x}", f"task.y={y}"]


@pytest.mark.slow
def test_what_is_killed_goes_on_with_the_same_trials(tuning: Tuning) -> None:
    process = tuning.start("--trials=4", "--parallel=2", arguments=("--seconds=1",))
    ends = time.monotonic() + PATIENCE
    while len(tuning.begun()) < 3:
        assert time.monotonic() < ends
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    code, out, error = tuning.run("--trials=4", "--parallel=2")
    assert code == 0, error
    begun = tuning.begun()
    assert list(begun) == [f"{number:04}" for number in range(4)]
    assert all(len(set(times)) == 1 for times in begun.values())
    assert any(len(times) == 2 for times in begun.values())
    table = out.partition("\ntrial  state")[2]
    assert table.count("  complete  ") == 4
    assert "is taken up again" in out


def test_an_interrupt_ends_the_jobs_and_says_how_to_go_on(tuning: Tuning) -> None:
    process = tuning.start("--trials=2", arguments=("--seconds=100",))
    ends = time.monotonic() + PATIENCE
    while not tuning.begun():
        assert time.monotonic() < ends
        time.sleep(0.05)
    code, _, error = tuning.run("--trials=2")
    assert code == 2
    assert "error: another cloud.tune uses " in error
    process.terminate()
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "stopped; the same command continues where this was" in out


def test_trials_that_fall_behind_are_given_up(tuning: Tuning) -> None:
    tuning.write_study(", pruner=optuna.pruners.ThresholdPruner(lower=99)")
    code, out, error = tuning.run("--trials=1", arguments=("--seconds=100",))
    assert code == 0, error
    assert "trial 0 is given up: others were better by then" in out
    assert "    0  pruned" in out


@pytest.mark.parametrize(
    ("own", "arguments", "options", "code", "message"),
    [
        pytest.param(
            *((), ("--code=3",), "", 3, "error: 3 trials in a row have failed; see "),
            marks=pytest.mark.slow,
        ),
        ((), (), ", direction='up'", 2, "error: the study's direction is 'up'; write one of max"),
        ((), ("--job_dir=gs://b/x",), "", 2, "--job_dir=gs://b/x is no local directory: give --"),
        (("--target=kubernetes",), (), "", 2, "/job is no directory here, where the trials' rep"),
        (("--storage=gs://b/x",), (), "", 2, "error: --storage=gs://b/x is no local file, as Opt"),
        (("--storage=study.py/x",), (), "", 2, "study.py/x, which the search is kept in, cannot"),
        (("--nohelp=1",), (), "", 2, "error: --nohelp=1 does not take an argument; `python -m cl"),
        (("--study=none.py",), (), "", 2, "error: --study=none.py"),
        (("--trials=0",), (), "", 2, "flag --trials=0"),
    ],
)
def test_what_cannot_be_searched_ends_with_one_message(
    tuning: Tuning,
    own: tuple[str, ...],
    arguments: tuple[str, ...],
    options: str,
    code: int,
    message: str,
) -> None:
    tuning.write_study(options)
    ended, _, error = tuning.run(*own, "--trials=9" if not own else own[0], arguments=arguments)
    assert ended == code
    assert message in error
    assert "Traceback" not in error


def test_what_optuna_s_journal_cannot_hold_is_named(tuning: Tuning) -> None:
    study = STUDY.replace("OPTIONS", "").replace(
        'trial.suggest_int("y", 0, 9)', '__import__("numpy").int64(trial.suggest_int("y", 0, 9))'
    )
    (tuning.directory / "study.py").write_text(study)
    code, _, error = tuning.run()
    assert code == 2
    assert "suggest() of --study has failed: Object of type int64 is not" in error
    assert "Traceback" not in error


def test_a_metric_that_is_no_number_is_a_failed_trial(tuning: Tuning) -> None:
    code, out, error = tuning.run("--trials=1", arguments=("--score=nan",))
    assert (code, error) == (0, "")
    assert "trial 0 has failed: its job's score is nan; see " in out
    assert "    0  fail " in out


def test_a_metric_that_no_evaluation_has_is_named(tuning: Tuning) -> None:
    text = (tuning.directory / "study.py").read_text()
    (tuning.directory / "study.py").write_text(text.replace('"score"', '"auc"'))
    code, _, error = tuning.run("--trials=1", arguments=("--seconds=2",))
    assert code == 2
    assert "report.json have no metric auc, but loss, score" in error


def test_a_report_that_is_not_there_has_no_evaluations(tmp_path: pathlib.Path) -> None:
    from cloud.tuning import trial_job

    assert trial_job.values(str(tmp_path), "auc") == []
    rows = {"evaluations": [{"epoch": 1, "steps": 2, "auc": 0.5}]}
    (tmp_path / "report.json").write_text(json.dumps(rows))
    assert trial_job.values(str(tmp_path), "auc") == [(1, 0.5)]


def test_what_was_predicted_before_training_has_tenths_of_epochs_as_steps(
    tmp_path: pathlib.Path,
) -> None:
    from cloud.tuning import trial_job

    report = {"examples": {"trained": 250, "per_epoch": 100}, "progressive": {"auc": 0.7}}
    (tmp_path / "report.json").write_text(json.dumps(report))
    values = trial_job.values(str(tmp_path), "progressive_auc")
    assert values == [(step, 0.7) for step in range(1, 26)]
    with pytest.raises(UserError, match="has no progressive_acu, but progressive_auc"):
        trial_job.values(str(tmp_path), "progressive_acu")
    (tmp_path / "report.json").write_text(json.dumps({**report, "progressive": {}}))
    assert trial_job.values(str(tmp_path), "progressive_auc") == []
