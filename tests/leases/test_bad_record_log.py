"""Training around bad records: a table's rows count how often each record was trained."""

import dataclasses
import json

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from tests import corruption, counting_task
from tests.training_fixtures import reused
from tfps.errors import RunError, UserError
from tfps.leases.queue import QueueState

SIZES, BATCH = (230, 150, 20), 10
COUNT = sum(SIZES)
# Of the first shard, and the first ten of the last one: a batch without a good record.
CORRUPT = {
    5: corruption.of_another_type,
    17: corruption.with_an_id_outside,
    18: corruption.without_a_feature,
    **dict.fromkeys(range(380, 390), corruption.without_a_feature),
}
CHECKSUM, LENGTH = (100, 104), 60  # of the first and the second shard
# Behind the damaged length nobody knows where the next record begins.
BAD = {5, 17, 18, 100, 104, *range(230 + LENGTH, 380), *range(380, 390)}


MOST = len(BAD)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    written = counting_task.write(path, counting_task.CountingTask(records=COUNT), SIZES, CORRUPT)
    corruption.flip(written.path_of(written.shards[0]), CHECKSUM, corruption.DATA)
    corruption.flip(written.path_of(written.shards[1]), [LENGTH], corruption.LENGTH)
    return written


def trainer_of(data, limit=MOST, **settings):
    task = counting_task.CountingTask(records=COUNT)
    trainer = reused(data, task=task, batch_size=BATCH, max_bad_records=1, unroll=2, **settings)
    limited = dataclasses.replace(trainer.experiment.data, max_bad_records=limit)
    trainer.experiment = dataclasses.replace(trainer.experiment, data=limited)
    return trainer


def train(trainer, leases):
    while not leases.finished:
        trainer.coordinator.train(leases, lambda: False, lambda progress: None)
        leases.next_epoch()


def counted(leases):
    return leases.trained, leases.bad, leases.skipped, leases.repeated


@pytest.mark.quick("70-2-2.5")
@pytest.mark.parametrize(
    ("shuffle_buffer", "pipeline_depth", "seconds"), [(0, 0, 0.01), (70, 2, 2.5), (8192, 0, 5.0)]
)
def test_every_good_record_is_trained_once_per_epoch(data, shuffle_buffer, pipeline_depth, seconds):
    trainer = trainer_of(data, shuffle_buffer=shuffle_buffer, pipeline_depth=pipeline_depth)
    trainer.coordinator.meter.lease_length.measured(1, seconds)  # leases shorter than a block, too
    leases, seen = trainer.queue(epochs=2), []
    while not leases.finished:
        trainer.coordinator.train(leases, lambda: False, seen.append)
        leases.next_epoch()
    visited = trainer.store.read_table(0)[:, 0]
    assert set(np.flatnonzero(visited == 0)) == BAD
    assert np.sum(visited == 2) == COUNT - len(BAD)
    assert counted(leases) == (2 * (COUNT - len(BAD)), 2 * len(BAD), 0, 0)
    assert seen[-1].examples == leases.trained
    [share] = trainer.coordinator.meter.worker_shares.report()
    assert share.records == leases.trained
    if not shuffle_buffer:  # batches without a good record change nothing
        assert trainer.steps() == 2 * (23 + 6 + 1)


def test_the_report_lists_each_once_with_place_and_reason(data):
    trainer = trainer_of(data, shuffle_buffer=70, pipeline_depth=2)
    leases = trainer.queue(epochs=2)
    train(trainer, leases)
    listed = leases.bad_records.report()
    first, second, third = (shard.file for shard in data.shards)
    places = [(entry.shard, entry.record, entry.records) for entry in listed]
    assert places == [
        *((first, number, 1) for number in (5, 17, 18, 100, 104)),
        (second, LENGTH, 90),
        *((third, number, 1) for number in range(10)),
    ]
    assert [entry.reason for entry in listed[:6]] == [
        "holds integers in 'payload', not float32",
        f"holds the id {1 << 40} in 'record', outside [0, {COUNT})",
        "has no 'payload' (it has label, record)",
        "does not fit its checksum",
        "does not fit its checksum",
        "has a length that does not fit the length's checksum",
    ]
    content = tf.io.gfile.GFile(data.path_of(data.shards[0]), "rb").read()
    begins = [entry.byte for entry in listed[:5]]
    assert all(int.from_bytes(content[at : at + 8], "little") < 100 for at in begins)


def test_a_run_goes_on_with_what_it_knew(data):
    """Another process, from the state in a checkpoint, in the middle of an epoch."""
    trainer = trainer_of(data, shuffle_buffer=70, pipeline_depth=2)
    trainer.coordinator.meter.lease_length.measured(1, 1.0)
    leases = trainer.queue(epochs=2)
    while not leases.bad:
        trainer.coordinator.train(leases, lambda: True, lambda progress: None)
    kept = json.loads(json.dumps(dataclasses.asdict(leases.state())))
    state = msgspec.convert(kept, QueueState)
    assert state == leases.state()
    assert len(state.bad_records) == len(leases.bad_records.report()) > 0
    again = trainer.queue(epochs=2, state=state)
    assert again.bad_records.report() == leases.bad_records.report()
    train(trainer, again)
    assert counted(again) == (2 * (COUNT - len(BAD)), 2 * len(BAD), 0, 0)
    visited = trainer.store.read_table(0)[:, 0]
    assert set(np.flatnonzero(visited == 0)) == BAD
    assert np.sum(visited == 2) == COUNT - len(BAD)
    with pytest.raises(UserError, match=rf"--data.max_bad_records=3, .* knows {len(BAD)} bad"):
        trainer_of(data, limit=3).queue(state=again.state())


def test_one_bad_record_more_than_allowed_ends_the_training(data):
    limit = len(BAD) - 1
    trainer = trainer_of(data, limit)
    with pytest.raises(UserError) as ended:
        train(trainer, trainer.queue())
    message = str(ended.value)
    assert message.startswith(f"training epoch 1: shard {data.directory}/counted-0000")
    assert f"and --data.max_bad_records={limit} allows no more: correct the data" in message
    last = [(90, 15), (10, 95), (5, 100)]
    assert any(
        f"it is the first of {found} bad records there; {before} were passed over" in message
        for found, before in last
    )


def test_what_only_the_chief_can_read_is_no_bad_record(data):
    trainer = trainer_of(data, locate=lambda path: tf.constant("/nowhere"))
    with pytest.raises(RunError, match=r"a worker cannot read records \d+ to \d+, but the chief"):
        train(trainer, trainer.queue())


def test_a_shard_that_vanished_is_named(tmp_path):
    data = counting_task.write(tmp_path / "data", counting_task.CountingTask(records=20), [20])
    path = data.path_of(data.shards[0])
    tf.io.gfile.remove(path)
    trainer = trainer_of(data)
    with pytest.raises(UserError, match=rf"epoch 1: shard {path} has vanished since the run began"):
        train(trainer, trainer.queue())
