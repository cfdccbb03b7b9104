import pathlib

import pytest
import tensorflow as tf

from tests.training_fixtures import Trainer, dataset
from tfps.errors import RunError, UserError
from tfps.lease_queue import LeaseQueue, QueueState


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=331, shards=4)


def queue(trainer, epochs=1):
    return LeaseQueue(trainer.leases, epochs, QueueState())


def test_an_epoch_is_trained_exactly_and_reported_on_the_way(manifest):
    trainer = Trainer(manifest)
    leases, seen = queue(trainer), []
    trainer.coordinator.train(leases, lambda: False, seen.append)
    assert leases.epoch_finished
    assert leases.trained == 331
    assert leases.repeated == 0
    assert seen[-1].examples == 331
    assert [p.examples for p in seen] == sorted(p.examples for p in seen)
    weighted = [p.loss for p in seen if p.loss is not None]
    assert all(0.3 < loss < 2 for loss in weighted)


def test_a_pause_lets_the_leases_in_flight_finish(manifest):
    trainer = Trainer(manifest)
    leases = queue(trainer)
    trainer.coordinator.train(leases, lambda: True, lambda progress: None)
    assert leases.idle
    assert not leases.epoch_finished
    assert len(leases.state().done) == 1
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    assert leases.trained == 331


def test_evaluation_returns_every_record_in_the_order_of_the_shards(manifest):
    trainer = Trainer(manifest)
    result = trainer.coordinator.evaluate(trainer.shards())
    labels = [
        tf.train.Example.FromString(x).features.feature["label"].int64_list.value[0]
        for path, _ in trainer.shards()
        for x in tf.data.TFRecordDataset(path).as_numpy_iterator()
    ]
    assert result.labels["label"].tolist() == labels
    assert result.predictions["predictions"].shape == (331,)


def test_a_shard_that_vanished_is_named(tmp_path):
    manifest = dataset(tmp_path / "data", records=50, shards=2)
    trainer = Trainer(manifest)
    path, _ = trainer.shards()[1]
    tf.io.gfile.remove(path)
    with pytest.raises(UserError, match=rf"epoch 1: shard {path} has vanished since the run began"):
        trainer.coordinator.train(queue(trainer), lambda: False, lambda progress: None)


def test_bad_records_are_named(tmp_path):
    manifest = dataset(tmp_path / "data", records=300, shards=1)
    trainer = Trainer(manifest)
    [(path, _)] = trainer.shards()
    size = manifest.bytes // 300
    content = bytearray(pathlib.Path(path).read_bytes())

    def message_of_a_run():
        pathlib.Path(path).write_bytes(content)
        with pytest.raises(UserError) as caught:
            trainer.coordinator.train(queue(trainer), lambda: False, lambda progress: None)
        return str(caught.value)

    for record in (170, 171, 255):
        content[record * size + 20] ^= 0xFF
    assert message_of_a_run() == (
        f"training epoch 1: shard {path}: record 170 (byte {170 * size}) does not fit its checksum;"
        " it is the first of 3 bad records there; correct the data or make the shard again"
    )
    del content[160 * size :]
    assert message_of_a_run() == (
        f"training epoch 1: shard {path}: record 160 (byte {160 * size}) is missing: the manifest "
        "says the file holds 300 or more; correct the data or make the shard again"
    )


def test_a_ps_that_went_away_ends_the_training(manifest):
    trainer = Trainer(manifest)
    trainer.watch.lost = lambda job: [f"{job} 1 at host:1"]
    with pytest.raises(RunError, match="ps 1 at host:1"):
        trainer.coordinator.train(queue(trainer), lambda: False, lambda progress: None)
