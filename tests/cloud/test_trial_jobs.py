"""Jobs of trials on a platform, whose `cloud.submit` does what a test says."""

import pathlib
import subprocess
import time
from collections.abc import Callable

import pytest

from cloud.tuning import trial_job
from cloud.tuning.search import Plan, Search
from cloud.tuning.study import Study
from cloud.tuning.trial_job import TrialJob

pytest.importorskip("optuna")
PATIENCE = 60.0
# Of each verb, how it behaves stands in a file; its lines are what it does one time after another.
SUBMIT = """
import pathlib, sys, time
verb = sys.argv[1] if sys.argv[1] in ("follow", "cancel") else "submit"
with open("asked", "a") as asked:
    print(verb, *sys.argv[2:3] if verb != "submit" else (), file=asked)
path = pathlib.Path(verb)
now, *later = path.read_text().splitlines()
path.write_text("\\n".join(later or [now]))
exec(now)
"""
SENDS = "print('submitted job-7')\n"
RUNS = "time.sleep(600)\n"
AWAY = "print('error: no answer; the job continues; follow it with x'); sys.exit(3)\n"
FAILED = "print('error: job-7: Failed: why'); sys.exit(3)\n"
LATE = "print('error: Running after 1 s (--wait_seconds); the job continues; x'); sys.exit(3)\n"


class Platform:
    """What `cloud.submit` does, and was asked for."""

    def __init__(self, directory: pathlib.Path):
        self._directory = directory
        self.log = directory / "logs" / "0000.log"

    def does(self, **verbs: str) -> None:
        for verb, text in verbs.items():
            (self._directory / verb).write_text(text)

    def asked(self) -> list[str]:
        path = self._directory / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def kill_at_last_line(self, process: subprocess.Popen[bytes]) -> int:
        """Kills a `cancel` that is at its last behaviour but one."""
        wait_until(lambda: (self._directory / "cancel").read_text() == "pass")
        process.kill()
        return process.wait()

    def job(self) -> TrialJob:
        return TrialJob(["--target=lab"], ["--job_dir=x"], self.log, is_here=False)


@pytest.fixture(name="platform")
def platform_fixture(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    (tmp_path / "logs").mkdir()
    package = tmp_path / "cloud"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "submit.py").write_text(SUBMIT)
    monkeypatch.chdir(tmp_path)  # where `python -m` looks first
    monkeypatch.setattr(trial_job, "_AGAIN_SECONDS", 0.0)
    return Platform(tmp_path)


def wait_until(is_so: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_job_is_followed_again_where_its_platform_was_away(platform: Platform) -> None:
    platform.does(submit=SENDS, follow=AWAY + AWAY + FAILED)
    job = platform.job()
    wait_until(lambda: job.poll() is not None)
    assert job.poll() == 3
    assert platform.asked() == ["submit", *["follow job-7"] * 3]


def test_a_job_that_is_followed_no_longer_than_asked_has_failed(platform: Platform) -> None:
    platform.does(submit=SENDS, follow=LATE)
    job = platform.job()
    wait_until(lambda: job.poll() is not None)
    assert job.poll() == 3
    assert platform.asked() == ["submit", "follow job-7"]


def test_a_job_that_cannot_be_cancelled_continues(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    platform.does(submit=SENDS, follow=RUNS, cancel="sys.exit(3)\n" + RUNS + "pass")
    job = platform.job()
    wait_until(lambda: job.poll() or "follow job-7" in platform.asked())
    assert not job.end()
    assert "job-7 cannot be ended, which is tried again; see" in capsys.readouterr().out
    with monkeypatch.context() as impatient:
        impatient.setattr(trial_job, "_wait_or_kill", platform.kill_at_last_line)
        assert not job.end()  # it does not answer
    assert job.poll() is None
    monkeypatch.setattr(trial_job, "_END_SECONDS", PATIENCE)
    assert job.end()
    assert job.poll() is not None
    assert platform.asked()[2:] == ["cancel job-7"] * 3


def test_a_job_that_is_being_sent_is_known_to_the_next_process(
    platform: Platform, tmp_path: pathlib.Path
) -> None:
    platform.does(submit=f"time.sleep(1); {SENDS}", follow="pass")
    study = Study(lambda trial: {"x": trial.suggest_float("x", 0, 1)}, "auc")
    plan = Plan("study", ["--target=lab"], ["--a"], str(tmp_path), tmp_path / "logs", is_here=False)
    with Search(study, plan, tmp_path / "journal") as search:
        search._begin()  # and an interrupt
    with Search(study, plan, tmp_path / "journal") as search:
        [trial] = search._study.get_trials()
        assert trial.user_attrs["job"] == "job-7"


def test_a_submission_that_does_not_end_is_not_waited_for_for_ever(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_job, "_SEND_SECONDS", 0.2)
    platform.does(submit=RUNS)
    job = platform.job()
    job.leave()
    assert not job.name
