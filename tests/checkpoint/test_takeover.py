"""A chief that is stopped between its last look at chief.json and its commit, and one after it."""

import pytest

from tests.checkpoint.saved_state import DATA
from tests.local_cloud.cloud_fixture import each_place_fixture, job_dir_anywhere_fixture  # noqa: F401
from tests.training_fixtures import reused, save
from tfps.checkpoint import commit_marker
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.errors import RunError
from tfps.job_dir import JobDir
from tfps.job_dir.chief_fence import ChiefFence, SupersededError
from tfps.leases.queue import QueueState
from tfps.storage import files


def begin(job_dir):
    """What a chief does before it restores a checkpoint."""
    fence, directory = ChiefFence.take_over(JobDir(job_dir)), CheckpointDirectory(JobDir(job_dir))
    directory.delete_uncommitted()
    return fence, directory


@pytest.mark.quick("local-*", "fake-gcs-server-*")
@pytest.mark.parametrize("stopped_before", ["prepare", "commit"])
def test_a_chief_that_was_stopped_before_its_commit_cannot_commit(
    manifest, job_dir, monkeypatch, stopped_before
):
    trainer = reused(manifest)
    fence, directory = begin(job_dir)
    saved = save(directory, trainer.store, QueueState(epoch=1), DATA, fence.confirm)
    real = getattr(commit_marker, stopped_before)

    def stopped(argument):
        begin(job_dir)  # another chief takes over meanwhile
        return real(argument)

    monkeypatch.setattr(commit_marker, stopped_before, stopped)
    with pytest.raises(RunError) as refused:
        save(directory, trainer.store, QueueState(epoch=2), DATA, fence.confirm)
    monkeypatch.undo()
    with pytest.raises(SupersededError):
        fence.check()
    if stopped_before == "commit":
        assert "another chief may have begun" in str(refused.value)
    _, later = begin(job_dir)
    assert later.names() == [saved.name]
    assert files.names(f"{job_dir}/checkpoints") == [saved.name]


def test_a_commit_that_comes_before_the_next_chief_looks_counts(manifest, job_dir):
    fence, directory = begin(job_dir)
    saved = save(directory, reused(manifest).store, QueueState(epoch=1), DATA, fence.check)
    _, later = begin(job_dir)
    assert later.latest() == saved
