"""A table, on one ps, with more values than an int32 can count, and with more rows."""

import dataclasses
import shutil

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.training_fixtures import Trainer, dataset, save, train_with
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState

VALUES = (1 << 31) + 2_000
TABLE_BYTES = 4 * VALUES
SPARE_BYTES = 3 << 30  # of memory beside the table: TensorFlow, and chunks while it is saved
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(1800)]


@dataclasses.dataclass(frozen=True)
class Long(Smoke):
    """The smoke model with a long table, trained without slots."""

    def optimizer(self):
        return keras.optimizers.SGD(1.0)


def refuse_to_begin_without_room(directory):
    """Skips the test where the table, or its checkpoint, has no room."""
    memory, disk = psutil.virtual_memory().available, shutil.disk_usage(directory).free
    if memory < TABLE_BYTES + SPARE_BYTES:
        pytest.skip(f"needs {TABLE_BYTES + SPARE_BYTES:,} bytes of memory, {memory:,} are there")
    if disk < TABLE_BYTES + SPARE_BYTES:
        pytest.skip(f"needs {TABLE_BYTES + SPARE_BYTES:,} bytes of disk, {disk:,} are left")


@pytest.mark.parametrize("dim", [1, 2])
def test_the_last_rows_are_trained_saved_and_restored(tmp_path, dim):
    refuse_to_begin_without_room(tmp_path)
    manifest = dataset(tmp_path / "data", records=20, shards=1)
    rows, middle = VALUES // dim, (1 << 31) // dim
    trainer = Trainer(manifest, task=Long(vocabulary=rows, dim=dim), parts=1)
    store = trainer.store
    assert store.layout.groups[0].layout.total_rows >= rows
    ids = np.array([0, 1, middle - 1, middle, middle + 1, rows - 2, rows - 1])
    before = store.read_rows(0, ids)
    assert len(np.unique(before)) == before.size  # each was drawn

    features = {
        "numbers": tf.random.stateless_normal([len(ids), 4], [1, 2]),
        "token": tf.constant(ids),
    }
    labels = {"label": tf.constant(np.arange(len(ids)) % 2)}
    train = train_with(trainer.step)
    train(features, labels, tf.constant([0, 1], tf.int64))
    trained = store.read_rows(0, ids)
    assert (trained != before).all()
    near = np.array([2, middle - 2, middle + 2, rows - 3])  # and 2^31 values apart from others
    untouched = store.read_rows(0, near)

    checkpoint = save(CheckpointDirectory(JobDir(tmp_path / "job")), store, QueueState(), [{}])
    train(features, labels, tf.constant([0, 2], tf.int64))
    store.begin_rows(0, near, np.full([len(near), dim], 7.0, np.float32))
    assert (store.read_rows(0, ids) != trained).all()
    restore(checkpoint, store, [{}])
    np.testing.assert_array_equal(store.read_rows(0, ids), trained)
    np.testing.assert_array_equal(store.read_rows(0, near), untouched)
