"""Checkpoints on gs://: saved, increments on them, old ones deleted, restored."""

import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.checkpoint.saved_state import DATA, assert_equal, saver_of, train, whole
from tests.local_cloud.cloud_fixture import cloud_fixture, each_cloud_process_fixture  # noqa: F401
from tests.training_fixtures import Trainer
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import WarmStart, restore_newest
from tfps.checkpoint.saved_values import dense_values
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState

JOB_DIR = "gs://bucket/job"
pytestmark = pytest.mark.slow


def test_save_increment_retention_and_restore(cloud, manifest):
    task = Smoke(dim=2048)  # 25 MB with Adam's slots, most of it padding: rows are tracked
    trainer, directory = Trainer(manifest, task=task), CheckpointDirectory(JobDir(JOB_DIR))
    saved = []
    with saver_of(directory, trainer.store, last=1) as saver:
        for epoch in range(4):
            train(trainer, epoch)
            saver.begin(QueueState(epoch + 1), DATA, lambda: None, saved.append)
            saver.finish()
    full, *increments = saved
    assert full.increment is None
    assert [each.increment.base for each in increments] == [full.base] * 3
    assert max(each.size for each in increments) < full.size / 10
    assert directory.names() == [full.name, increments[-1].name]
    assert len(tf.io.gfile.glob(f"{JOB_DIR}/checkpoints/*/commit.json")) == 2

    second = Trainer(manifest, task=task, parts=3, seed=1)
    assert restore_newest(directory, second.store, DATA) == (increments[-1], {})
    assert_equal(whole(trainer.store), whole(second.store))
    assert "hidden/kernel" in dense_values(JOB_DIR)

    third = Trainer(manifest, task=task, parts=1, seed=2).store
    assert WarmStart(JOB_DIR).begin(third) == increments[-1]
    assert_equal(whole(trainer.store), whole(third))
    fourth = Trainer(manifest, task=task, parts=1, seed=2).store
    assert WarmStart(JOB_DIR, ("token_table",)).begin(fourth) == increments[-1]
    theirs = trainer.store.read_table(0)
    np.testing.assert_allclose(fourth.read_table(0), theirs, rtol=0, atol=1e-6)

    # A part that is missing: the one before is left.
    data = max(tf.io.gfile.glob(f"{increments[-1].path}/parameters.data-*"))
    tf.io.gfile.remove(data)
    restored, passed_over = restore_newest(directory, second.store, DATA)
    assert restored == full
    assert passed_over == {increments[-1].path: f"{data.rpartition('/')[2]} is missing"}
