"""Single parts of a run, each call of which meets a fault; run by `test_parts.py` with the shim."""

import contextlib
import itertools

import pytest

from tests.faults import shim
from tests.project import ROOT
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.data import manifest
from tfps.errors import RunError
from tfps.experiment import overrides
from tfps.job_dir import JobDir
from tfps.job_dir.chief_fence import ChiefFence, SupersededError
from tfps.job_dir.task_files import PreemptionNotices
from tfps.job_dir.task_name import TaskName
from tfps.storage import failures, files
from tfps.storage.failures import StorageError
from trainer.datasets.generation import generate

ERRORS = ("EIO", "ESTALE", "ETIMEDOUT")
CALLS = 200  # more than any part has


@pytest.fixture(name="faults")
def faults_fixture(tmp_path, monkeypatch):
    """Lets calls fail, none of which is tried again."""
    monkeypatch.setattr(failures, "PATIENCE_SECONDS", 0.0)

    def set_faults(kind, first=1, last=shim.FOREVER):
        told = tmp_path.with_name(f"{tmp_path.name}-told")
        told.unlink(missing_ok=True)
        shim.misbehave([str(tmp_path)], shim.FAULTS[kind], first, last, told=str(told))
        return told

    yield set_faults
    shim.misbehave([], shim.NOTHING, 0, 0)


def each_call(set_faults, kind, work):
    """Does some work once for each of its calls, which then fails; how many there were."""
    for call in itertools.count(1):
        told = set_faults(kind, call, call)
        with contextlib.suppress(RunError):
            work()
        shim.misbehave([], shim.NOTHING, 0, 0)
        if not told.exists() or not told.read_text():
            return call - 1
        assert call < CALLS


@pytest.mark.parametrize("kind", [*ERRORS, "stale"])
def test_an_answer_that_did_not_come_deletes_no_checkpoint(tmp_path, faults, kind):
    names = [f"{number:012d}-{number:06d}" for number in (1, 2, 3)]
    for name in names:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "commit.json").write_text("{}")

    def start():
        CheckpointDirectory(JobDir(tmp_path)).delete_uncommitted()

    assert each_call(faults, kind, start) > len(names)
    assert CheckpointDirectory(JobDir(tmp_path)).names() == names


@pytest.mark.parametrize("kind", ERRORS)
def test_an_answer_that_did_not_come_is_no_no(tmp_path, faults, kind):
    (tmp_path / "directory").mkdir()
    (tmp_path / "directory" / "file").write_text("")
    for ask in (files.exists, files.is_directory, files.names):
        faults(kind)
        with pytest.raises(StorageError, match=r"directory cannot be .*; when the storage answers"):
            ask(str(tmp_path / "directory"))
    faults(kind, 2, 1)  # no call
    assert files.names(str(tmp_path / "directory")) == ["file"]
    assert not files.exists(str(tmp_path / "absent"))


def test_what_may_pass_is_tried_again(tmp_path, faults, monkeypatch):
    monkeypatch.setattr(failures, "PATIENCE_SECONDS", 60.0)
    faults("ESTALE", 1, 3)
    files.replace(str(tmp_path / "file"), b"content")
    assert files.read(str(tmp_path / "file")) == b"content"
    faults("EIO", 1, 1)
    files.rename(str(tmp_path / "file"), str(tmp_path / "other"))
    assert files.names(str(tmp_path)) == ["other"]


@pytest.mark.parametrize("kind", ERRORS)
def test_data_that_storage_does_not_give_are_no_mistake_of_the_user(tmp_path, faults, kind):
    generate(overrides.load(str(ROOT / "configs/smoke.py")), str(tmp_path / "data"), 64, 2)
    # A `UserError` would end it.
    assert each_call(faults, kind, lambda: manifest.read(str(tmp_path / "data"))) > 3


def test_a_full_disk_is_not_waited_for(tmp_path, faults, monkeypatch):
    monkeypatch.setattr(failures, "PATIENCE_SECONDS", 3600.0)
    faults("ENOSPC")
    with pytest.raises(StorageError, match=r"file cannot be written .*; make room") as full:
        files.replace(str(tmp_path / "file"), b"content")
    assert not full.value.may_pass


def test_a_chief_holds_its_job_while_the_storage_is_silent(tmp_path, faults, monkeypatch):
    fence = ChiefFence.take_over(JobDir(tmp_path))
    faults("EIO")
    fence.check()
    with pytest.raises(StorageError):  # what counts is not done on an old answer
        fence.confirm()
    now = failures.time.monotonic()
    monkeypatch.setattr(failures.time, "monotonic", lambda: now + failures.HOLD_SECONDS + 1)
    with pytest.raises(RunError, match=r"^for 30\d s .*chief\.json cannot be read") as silent:
        fence.check()
    assert silent.value.exit_code == 3
    faults("EIO", 2, 1)  # no call
    ChiefFence.take_over(JobDir(tmp_path))
    with pytest.raises(SupersededError):
        fence.check()


@pytest.mark.parametrize("kind", ERRORS)
def test_a_ps_that_leaves_is_still_leaving_while_the_storage_is_silent(
    tmp_path, faults, kind, monkeypatch
):
    notices = PreemptionNotices(JobDir(tmp_path), [TaskName("ps", 1)])
    held = failures.StaleReadTolerance()
    notices.post(TaskName("ps", 1))
    leaving = held.ask(notices.posted, [])
    # How long it is silent counts, not how long ago it was asked.
    now = failures.time.monotonic()
    monkeypatch.setattr(failures.time, "monotonic", lambda: now + failures.HOLD_SECONDS + 1)
    faults(kind)
    assert held.ask(notices.posted, leaving) == leaving == [TaskName("ps", 1)]
