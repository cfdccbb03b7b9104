import dataclasses
import pathlib
import threading

import numpy as np
import pytest
import tensorflow as tf

from tests import counting_task
from tests.polling import Polling
from tests.training_fixtures import Trainer, dataset, reused
from tfps.cluster.liveness import Liveness
from tfps.cluster.monitor import TaskMonitor
from tfps.data.shards import RecordIndex
from tfps.errors import RunError, UserError
from tfps.experiment.mode import LocalSGD
from tfps.job_dir.task_name import TaskName


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=331, shards=4)


def test_an_epoch_is_trained_exactly_and_reported_on_the_way(manifest):
    trainer = reused(manifest)
    leases, seen = trainer.queue(), []
    trainer.coordinator.train(leases, lambda: False, seen.append)
    assert leases.epoch_finished
    assert leases.trained == 331
    assert leases.repeated == 0
    assert seen[-1].examples == 331
    assert [p.examples for p in seen] == sorted(p.examples for p in seen)
    weighted = [p.loss for p in seen if p.loss is not None]
    assert all(0.3 < loss < 2 for loss in weighted)
    [share] = trainer.coordinator.meter.worker_shares.report()
    assert (share.leases, share.records) == (4, 331)
    assert share.seconds > 0
    assert 0 <= share.idle_seconds < 60


def test_a_pause_lets_the_leases_in_flight_finish(manifest):
    trainer = reused(manifest)
    leases = trainer.queue()
    trainer.coordinator.train(leases, lambda: True, lambda progress: None)
    assert leases.idle
    assert not leases.epoch_finished
    assert 0 < leases.state().cursor < 331
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    assert leases.trained == 331


def test_the_rest_of_an_epoch_is_the_same_after_a_pause(manifest):
    """Another process resumes from the state, with leases of other lengths."""
    whole = reused(manifest)
    whole.coordinator.train(whole.queue(), lambda: False, lambda progress: None)
    expected = whole.store.read_table(0)
    first = reused(manifest)
    leases = first.queue()
    first.coordinator.meter.lease_length.measured(1, 2.5)  # two batches are a lease
    for _ in range(3):
        first.coordinator.train(leases, lambda: True, lambda progress: None)
    assert 0 < leases.state().cursor <= 3 * 64
    again = first.queue(state=leases.state())
    first.coordinator.train(again, lambda: False, lambda progress: None)
    assert (again.trained, again.skipped) == (331, 0)
    np.testing.assert_allclose(first.store.read_table(0), expected, atol=1e-6)


def test_a_compressed_shard_is_trained_in_one_closure(manifest, tmp_path):
    plain = manifest.shards[0]
    path = tmp_path / "compressed"
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for record in tf.data.TFRecordDataset(manifest.path_of(plain)).as_numpy_iterator():
            writer.write(record)
    shard = dataclasses.replace(plain, file=path.name, compression="GZIP")
    index = RecordIndex(1024, (np.zeros(0, np.int64),))
    trainer = reused(
        dataclasses.replace(manifest, shards=(shard,), index=index, directory=str(tmp_path))
    )
    trainer.coordinator.meter.lease_length.measured(1, 5.0)  # one batch is a lease
    leases = trainer.queue()
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    assert leases.trained == plain.records
    assert trainer.coordinator.meter.worker_shares.report()[0].leases == 1
    evaluated = trainer.evaluate()
    assert len(evaluated.labels["label"]) == plain.records


def test_evaluation_returns_every_record_in_the_order_of_the_shards(manifest):
    trainer = reused(manifest)
    result = trainer.evaluate()
    labels = [
        tf.train.Example.FromString(x).features.feature["label"].int64_list.value[0]
        for source, _ in trainer.shards()
        for x in tf.data.TFRecordDataset(source.path).as_numpy_iterator()
    ]
    assert result.labels["label"].tolist() == labels
    assert result.predictions["predictions"].shape == (331,)


def test_a_shard_that_vanished_is_named(tmp_path):
    manifest = dataset(tmp_path / "data", records=50, shards=2)
    trainer = reused(manifest)
    path = trainer.shards()[1][0].path
    tf.io.gfile.remove(path)
    with pytest.raises(UserError, match=rf"epoch 1: shard {path} has vanished since the run began"):
        trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)


def test_bad_records_are_named(tmp_path):
    manifest = dataset(tmp_path / "data", records=300, shards=1)
    trainer = reused(manifest)
    path = trainer.shards()[0][0].path
    size = manifest.bytes // 300
    content = bytearray(pathlib.Path(path).read_bytes())

    def message_of_a_run():
        pathlib.Path(path).write_bytes(content)
        with pytest.raises(UserError) as caught:
            trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
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
        "says the file holds 300 or more; it is the first of 140 bad records there; correct the "
        "data or make the shard again"
    )


def test_a_lost_worker_and_a_stall_are_told_with_the_leases_held(tmp_path, caplog):
    task = counting_task.CountingTask(step_seconds=3.0)
    data = counting_task.write(tmp_path / "data", task, [10])
    lost = threading.Event()
    addresses = {TaskName("worker", 0): "host:1"}

    def probe(address):
        return Liveness.REFUSES if lost.is_set() else Liveness.ANSWERS

    monitor = TaskMonitor(addresses, Polling(addresses, probe))
    trainer = Trainer(data, task, monitor=monitor, stall_seconds=1.5)
    # Traces and optimizes the closure: a lease without records.
    trainer.closures.train(trainer.shards()[0][0].pack(), tf.zeros([4], tf.int64))
    monitor.start()

    def lose_worker(progress):
        if trainer.progress.read()[0].worker == 0:
            lost.set()

    with pytest.raises(RunError, match=r"no batch was trained for \d+ s") as stalled:
        trainer.coordinator.train(trainer.queue(), lambda: False, lose_worker)
    monitor.stop()
    lease = f"epoch 1, shard {data.path_of(data.shards[0])}, records 0 to 9"
    assert f"worker 0 at host:1 has held {lease} for " in str(stalled.value)
    assert "0 batches trained: its port refused connections for " in str(stalled.value)
    assert f"worker 0 at host:1 held {lease}: it continues after 0 records" in caplog.messages


class Sent:
    """What a coordinator has sent, for it to begin late on a worker that was taken for lost."""

    def __init__(self, trainer):
        self.closures, executor = [], trainer.coordinator._executor
        self._lanes, schedule = len(trainer.progress.read()), executor.schedule

        def note(closure, args):
            self.closures.append((self._lane(args), args))
            return schedule(closure, args)

        executor.schedule = note

    def of(self, lane):
        """What was sent for a lane, oldest first."""
        return [args for each, args in self.closures if each == lane]

    def _lane(self, args):
        return int(args[1][3]) % self._lanes


def late_begins(tmp_path, begin_late, **settings):
    """Trains 400 records in leases of ten batches; returns queue and how often each was trained.

    Args:
        begin_late: Called with the trainer and what was sent until it returns True.
    """
    task = counting_task.CountingTask(records=400, step_seconds=0.1)
    data = counting_task.write(tmp_path / "data", task, [200, 200])
    trainer = reused(data, task=task, batch_size=10, shuffle_buffer=0, **settings)
    trainer.coordinator.meter.lease_length.measured(1, 0.5)  # five seconds are a lease
    sent, leases, is_done = Sent(trainer), trainer.queue(), []

    def look(progress):
        if not is_done and begin_late(trainer, sent):
            is_done.append(True)

    trainer.coordinator.train(leases, lambda: False, look)
    assert is_done
    return leases, trainer.store.read_table(0)[:, 0]


def test_a_lease_that_a_late_closure_takes_is_sent_again(tmp_path):
    """The closure is lost with its worker as soon as it has begun."""

    def begin_late(trainer, sent):
        for lane, row in enumerate(trainer.progress.read()):
            if 1 <= row.steps < 8:
                progress, place = trainer.progress, sent.of(lane)[-1][1][3]
                tf.function(progress.begin, autograph=False)(place, tf.constant(0, tf.int64))
                return True
        return False

    leases, times = late_begins(tmp_path, begin_late)
    assert (leases.trained, leases.skipped) == (400, 0)
    assert (times >= 1).all()
    assert times.sum() - 400 <= leases.repeated <= 10 * (2 + 9 + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"max_bad_records": 1}, marks=pytest.mark.slow),
        pytest.param({"mode": LocalSGD(sync_every=2)}, marks=pytest.mark.slow),
    ],
    ids=["async", "bad-records", "local_sgd"],
)
def test_a_closure_that_begins_when_its_lane_has_another_lease_trains_nothing(tmp_path, settings):
    results = []

    def begin_late(trainer, sent):
        for lane, row in enumerate(trainer.progress.read()):
            if len(sent.of(lane)) > 1 and 1 <= row.steps < 8:
                results.append(trainer.closures.train(*sent.of(lane)[0]).numpy())
                return True
        return False

    leases, times = late_begins(tmp_path, begin_late, **settings)
    assert set(times) == {1.0}
    assert (leases.trained, leases.skipped, leases.repeated) == (400, 0, 0)
    assert results[0][1] == -1


def test_a_ps_that_went_away_ends_the_training(manifest):
    trainer = reused(manifest)
    trainer.monitor.lost = lambda job: [f"{job} 1 at host:1"]
    with pytest.raises(RunError, match="ps 1 at host:1"):
        trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
