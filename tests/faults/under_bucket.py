"""Parts of a run on gs://, each request of which fails; run by `test_parts.py` without retries."""

import contextlib
import itertools
import os

import pytest
import tensorflow as tf

from tests.checkpoint.conftest import manifest_fixture  # noqa: F401
from tests.checkpoint.saved_state import DATA
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.local_cloud.settings import Fault
from tests.training_fixtures import Trainer, save
from tfps.checkpoint import reader
from tfps.checkpoint.directory import CheckpointDirectory, Retention
from tfps.errors import RunError
from tfps.job_dir import JobDir
from tfps.job_dir.chief_fence import ChiefFence
from tfps.leases.queue import QueueState

KINDS = ("read", "stat", "list", "write", "copy", "delete")
EVERY = "TFPS_EVERY_REQUEST" in os.environ
SHARES = 4 if EVERY else 7
REQUESTS = 200  # more than any part has


def each_request(cloud, what, work):
    """Does some work once for each of its requests, which then fails; how many there were."""
    for request in itertools.count(1):
        cloud.set(faults=(Fault(what, KINDS, next=1, skip=request - 1),))
        cloud.counted()
        with contextlib.suppress(RunError):
            work(request)
        hits = cloud.counted()["faults"].get(what, 0)
        cloud.set(faults=())
        if not hits:
            return request - 1
        assert request < REQUESTS


def begin(job_dir):
    """What a chief does before it restores a checkpoint."""
    fence, directory = ChiefFence.take_over(JobDir(job_dir)), CheckpointDirectory(JobDir(job_dir))
    directory.delete_uncommitted()
    return fence, directory


@pytest.mark.parametrize("what", ["503", "429"])
def test_a_start_whose_requests_fail_deletes_no_checkpoint(cloud, what):
    job_dir = f"gs://bucket/start-{what}"
    names = [f"{number:012d}-{number:06d}" for number in (1, 2, 3)]
    for name in names:
        marker = f"{job_dir}/checkpoints/{name}/commit.json"
        tf.io.gfile.makedirs(marker.rpartition("/")[0])
        with tf.io.gfile.GFile(marker, "w") as file:
            file.write("{}")
    assert each_request(cloud, what, lambda _: begin(job_dir)) > len(names)
    assert CheckpointDirectory(JobDir(job_dir)).names() == names


# Each request of a save fails in one of these. Few of them say what all say: `make faults` takes
# every request.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1, SHARES + 1) if EVERY else [3])
def test_a_save_whose_requests_fail_loses_no_commit(cloud, manifest, first):
    job_dir, trainer = f"gs://bucket/save-{first}", Trainer(manifest)
    newest = ""

    def save_epoch(epoch):
        nonlocal newest
        fence, directory = begin(job_dir)
        state = QueueState(epoch=epoch)
        retention = Retention(2)
        newest = save(directory, trainer.store, state, DATA, fence.confirm, retention).name

    for epoch in range(3):  # the last one deletes the first
        cloud.counted()
        save_epoch(epoch)
    requests = sum(cloud.counted()["requests"].values())
    assert requests > 50
    failed = range(first, requests + 1, SHARES)
    met = 0
    for request in failed:
        cloud.set(faults=(Fault("503", KINDS, next=1, skip=request - 1),))
        before = newest
        with contextlib.suppress(RunError):
            save_epoch(epoch + request)
        met += cloud.counted()["faults"].get("503", 0)
        cloud.set(faults=())
        found = begin(job_dir)[1].latest()
        assert found is not None
        assert found.name >= max(before, newest)
        reader.check(found)
    assert met == len(failed)
