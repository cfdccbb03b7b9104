import json
import pathlib

import numpy as np
import pytest

from configs.smoke import Smoke
from tests.training_fixtures import Trainer, dataset
from tfps.checkpoint import CheckpointDirectory
from tfps.epoch_order import EpochOrder
from tfps.errors import RunError, UserError
from tfps.lease_queue import QueueState

DATA = {"records": 100, "shards": 2, "checksums": 1}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=200, shards=2)


def trained(manifest, parts=2, **options):
    trainer = Trainer(manifest, parts=parts, **options)
    leases = trainer.queue()
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    return trainer


def whole(store):
    """Every logical tensor of a store, slots included."""
    tensors = {}
    for piece in sorted(store.pieces(), key=lambda piece: piece.first):
        tensors.setdefault(piece.name, []).append(piece.variable.numpy())
    return {name: np.concatenate(parts) for name, parts in tensors.items()}


@pytest.mark.parametrize("parts", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
def test_a_checkpoint_is_restored_bit_for_bit_onto_any_number_of_ps(manifest, tmp_path, parts):
    first = trained(manifest)
    directory = CheckpointDirectory(str(tmp_path), keep=3)
    state = QueueState(1, 100, trained=300, repeated=4, order=EpochOrder(32, 256, 5))
    saved = directory.save(first.store, state, DATA)

    second = Trainer(manifest, parts=parts, seed=9)
    found = directory.latest()
    assert found == saved
    directory.restore(found, second.store, DATA)
    assert found.queue == state
    assert second.store.steps() == first.store.steps() > 0
    before, after = whole(first.store), whole(second.store)
    assert set(before) == set(after) >= {"dense", "dense/momentum", "tables_dim4", "state"}
    for name, values in before.items():
        assert np.array_equal(values, after[name]), name


def test_training_goes_on_the_same_after_a_restore(manifest, tmp_path):
    first = trained(manifest)
    directory = CheckpointDirectory(str(tmp_path), keep=3)
    directory.save(first.store, QueueState(), DATA)
    second = Trainer(manifest, parts=3)
    directory.restore(directory.latest(), second.store, DATA)
    for trainer in (first, second):
        leases = trainer.queue(epochs=2, state=QueueState(epoch=1))
        trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    for table in range(1):
        np.testing.assert_allclose(
            first.store.read_table(table), second.store.read_table(table), rtol=0, atol=1e-6
        )


def test_what_is_not_committed_is_no_checkpoint_and_is_deleted(manifest, tmp_path):
    trainer = trained(manifest)
    directory = CheckpointDirectory(str(tmp_path), keep=3)
    saved = directory.save(trainer.store, QueueState(), DATA)
    newer = pathlib.Path(str(tmp_path), "checkpoints", "000000009999-000001")
    newer.mkdir()
    (newer / "parameters.part-0.data-00000-of-00001").write_bytes(b"half")
    assert directory.latest() == saved
    directory.delete_uncommitted()
    assert not newer.exists()
    assert pathlib.Path(saved.path).exists()


def test_a_save_that_is_refused_before_its_commit_is_no_checkpoint(manifest, tmp_path):
    trainer = trained(manifest)
    directory = CheckpointDirectory(str(tmp_path), keep=3)
    saved = directory.save(trainer.store, QueueState(), DATA)

    def refuse():
        raise RunError("a shard was replaced")

    with pytest.raises(RunError, match="a shard was replaced"):
        directory.save(trainer.store, QueueState(epoch=1), DATA, before_commit=refuse)
    assert directory.latest() == saved


def test_old_checkpoints_go(manifest, tmp_path):
    trainer = Trainer(manifest)
    directory = CheckpointDirectory(str(tmp_path), keep=2)
    for epoch in range(4):
        directory.save(trainer.store, QueueState(epoch=epoch), DATA)
    left = sorted(path.name for path in pathlib.Path(str(tmp_path), "checkpoints").iterdir())
    assert left == ["000000000000-000002", "000000000000-000003"]
    assert directory.latest().queue.epoch == 3
    assert directory.names() == left
    assert directory.find(left[0]).queue.epoch == 2
    assert directory.find(left[0]).name == left[0]
    assert directory.find("000000000000-000001") is None  # deleted meanwhile


def test_a_job_without_checkpoints_has_no_latest(tmp_path):
    directory = CheckpointDirectory(str(tmp_path), keep=1)
    directory.delete_uncommitted()
    assert directory.latest() is None


@pytest.mark.parametrize(
    ("options", "data", "named"),
    [
        ({"task": Smoke(units=9)}, DATA, "dense hidden/kernel was"),
        ({"task": Smoke(vocabulary=21)}, DATA, "tables token_table/embeddings was"),
        ({}, {**DATA, "records": 5}, "train data records was 100, is 5"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(manifest, tmp_path, options, data, named):
    directory = CheckpointDirectory(str(tmp_path), keep=1)
    directory.save(Trainer(manifest).store, QueueState(), DATA)
    with pytest.raises(UserError, match="does not fit this run") as raised:
        directory.restore(directory.latest(), Trainer(manifest, **options).store, data)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    "content", ["{", "[]", json.dumps({"format": 3}), json.dumps({"format": 2})]
)
def test_a_commit_marker_that_cannot_be_read_is_named(manifest, tmp_path, content):
    directory = CheckpointDirectory(str(tmp_path), keep=1)
    saved = directory.save(Trainer(manifest).store, QueueState(), DATA)
    pathlib.Path(saved.path, "commit.json").write_text(content)
    with pytest.raises(UserError, match=r"commit\.json"):
        directory.latest()
