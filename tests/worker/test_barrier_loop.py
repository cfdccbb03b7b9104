"""Closures whose workers wait for each other, several at a time in one process.

What a worker does is done by a thread here; queues, barrier loop and updates are a cluster's.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests import counting_task
from tests.training_fixtures import Trainer, dataset, reused, train_with
from tfps.barrier.loop import MemberState
from tfps.data.record_source import Batching, read_batches
from tfps.experiment.mode import Bounded, Sync
from tfps.job_dir.report import StalenessCounts
from tfps.leases.lease import EpochOrder

BATCH, SEED = 8, 3
LIMIT_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Plain(Smoke):
    """Without what depends on how records are put together: batch statistics, dropout."""

    rule: keras.optimizers.Optimizer | None = None

    def build_model(self):
        numbers = keras.Input((4,), name="numbers", dtype="float32")
        token = keras.Input((), name="token", dtype="int64")
        row = keras.layers.Embedding(self.vocabulary, self.dim, name="token_table")(token)
        hidden = keras.layers.Concatenate()([numbers, row])
        hidden = keras.layers.Dense(self.units, "relu", kernel_regularizer="l2")(hidden)
        return keras.Model({"numbers": numbers, "token": token}, keras.layers.Dense(1)(hidden))

    def optimizer(self):
        return self.rule or keras.optimizers.Adagrad(0.1)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=3 * 800, shards=3)


@contextlib.contextmanager
def barrier_of(trainer):
    """Runs a trainer's barrier loop, and gives a function that begins a closure in a thread."""
    run = trainer.barrier.run.get_concrete_function()
    trainer.closures.train.get_concrete_function()
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        loop = threads.submit(run)

        def begin(member, first=0, count=800, number=0):
            source, _ = trainer.shards()[member]
            place = trainer.progress.place(member, number)
            lease = tf.constant([first, count, SEED, place], tf.int64)
            return threads.submit(trainer.closures.train, source.pack(), lease)

        try:
            yield begin
        finally:
            trainer.barrier.stop()
        loop.result(LIMIT_SECONDS)


def steps_of(closure):
    attempts, steps, *_ = closure.result(LIMIT_SECONDS).numpy()
    return attempts, steps


step_of = functools.lru_cache(maxsize=4)(train_with)


def train_rounds(manifest, task, rounds):
    """What one process makes of rounds: of each, (shard, number of the batch) of every member."""
    alone = reused(manifest, task=task, batch_size=BATCH)
    block = EpochOrder.of(alone.experiment).block_batches
    batching = Batching(alone.task.schema(), BATCH, block)
    step, read = step_of(alone.step), []
    for source, _ in alone.shards():
        found = read_batches(source.tensors(), batching, tf.constant(SEED, tf.int64))
        read.append(list(found))
    for taken in rounds:
        parts = [read[shard][number] for shard, number in taken]
        joined = [
            {name: tf.concat([part[k][name] for part in parts], 0) for name in parts[0][k]}
            for k in range(2)
        ]
        step(*joined, tf.zeros([2], tf.int64))
    return alone


def assert_same(ours, theirs):
    for a, b in zip(ours.store.read_dense(), theirs.store.read_dense(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_allclose(ours.store.read_table(0), theirs.store.read_table(0), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(keras.optimizers.SGD(0.05), marks=pytest.mark.slow),
        pytest.param(keras.optimizers.SGD(0.02, momentum=0.9), marks=pytest.mark.slow),
        pytest.param(keras.optimizers.Adagrad(0.05), marks=pytest.mark.slow),
        keras.optimizers.Adam(0.002),
    ],
    ids=["sgd", "momentum", "adagrad", "adam"],
)
def test_rounds_of_three_are_batches_of_three_times_the_size(manifest, optimizer):
    task = Plain(rule=optimizer)
    trainer = Trainer(manifest, task, batch_size=BATCH, members=3, unroll=2)
    with barrier_of(trainer) as begin:
        trainer.barrier.expect([0, 1, 2])
        closures = [begin(member) for member in range(3)]
        assert [steps_of(closure) for closure in closures] == [(1, 100)] * 3
        assert trainer.barrier.status()[:2] == (100, 0)
    assert trainer.steps() == 100
    assert trainer.store.staleness.report() == StalenessCounts(mean=0.0, histogram=[100])
    rounds = [[(shard, number) for shard in range(3)] for number in range(100)]
    assert_same(trainer, train_rounds(manifest, task, rounds))


@pytest.mark.slow
def test_uneven_leases_and_batches_are_means_over_all_records(tmp_path):
    manifest = dataset(tmp_path, records=43, shards=2)
    assert [shard.records for shard in manifest.shards] == [22, 21]
    trainer = reused(manifest, task=Plain(), batch_size=BATCH, members=2, mode=Sync())
    with barrier_of(trainer) as begin:
        trainer.barrier.expect([0, 1])
        whole, short = begin(0, count=22), begin(1, count=BATCH)
        assert steps_of(short) == (1, 1)
        trainer.progress.clear({1: 0})
        last = begin(1, first=2 * BATCH, count=5)  # a lease after the other, in the same place
        assert steps_of(last) == (1, 1)
        trainer.barrier.leave([1])
        assert steps_of(whole) == (1, 3)
    rounds = [[(0, 0), (1, 0)], [(0, 1), (1, 2)], [(0, 2)]]
    assert_same(trainer, train_rounds(manifest, Plain(), rounds))


@pytest.mark.slow
def test_a_lost_member_is_waited_for_until_it_is_given_up_and_its_place_is_taken(manifest):
    """A closure that is given up stays where it is, waiting for a token that never comes."""
    trainer = reused(manifest, task=Plain(), batch_size=BATCH, members=2, mode=Sync())
    with barrier_of(trainer) as begin:
        trainer.barrier.expect([0, 1])
        other = begin(0, count=3 * BATCH)
        wait_until(lambda: MemberState.ARRIVED in trainer.barrier.status().states)
        time.sleep(0.3)
        assert trainer.barrier.status().round == 0
        trainer.barrier.leave([1])
        assert steps_of(other) == (1, 3)
        trainer.barrier.leave([0])
        again = begin(1, count=2 * BATCH)
        assert steps_of(again) == (1, 2)
    rounds = [[(0, 0)], [(0, 1)], [(0, 2)], [(1, 0)], [(1, 1)]]
    assert_same(trainer, train_rounds(manifest, Plain(), rounds))


def test_a_closure_that_is_begun_again_trains_no_batch_twice(manifest):
    trainer = reused(manifest, task=Plain(), batch_size=BATCH, members=2, mode=Sync())
    with barrier_of(trainer) as begin:
        trainer.barrier.expect([0, 1])
        first = begin(0, count=3 * BATCH)
        wait_until(lambda: trainer.barrier.status().states[0] == MemberState.ARRIVED)
        second = begin(0, count=3 * BATCH)  # what the first has contributed does not count
        wait_until(lambda: trainer.progress.read()[0].attempts == 2)
        assert steps_of(begin(1, count=3 * BATCH)) == (1, 3)
        assert steps_of(second) == (2, 3)
        assert steps_of(first) == (0, -1)  # it is told that the second holds the lease, and ends
    assert trainer.steps() == 3
    rounds = [[(0, k), (1, k)] for k in range(3)]
    assert_same(trainer, train_rounds(manifest, Plain(), rounds))


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Sync(), Bounded(max_staleness=2)], ids=str)
def test_a_closure_of_a_lease_that_is_over_takes_nobodys_place(manifest, mode):
    trainer = reused(manifest, task=Plain(), batch_size=BATCH, members=2, mode=mode)
    with barrier_of(trainer) as begin:
        trainer.barrier.expect([0, 1])
        trainer.progress.clear({0: 7})
        own = begin(0, first=3 * BATCH, count=10 * BATCH, number=7)
        wait_until(lambda: trainer.barrier.status().states[0] == MemberState.ARRIVED)
        before = trainer.barrier.status()
        assert steps_of(begin(0, count=3 * BATCH, number=6)) == (0, -1)
        assert trainer.barrier.status() == before
        assert steps_of(begin(1, count=10 * BATCH)) == (1, 10)
        assert steps_of(own) == (1, 10)
        trainer.barrier.leave([0, 1])
        trainer.progress.clear({0: 8})
        assert steps_of(begin(0, count=3 * BATCH, number=7)) == (0, -1)
        assert trainer.barrier.status().states == [MemberState.AWAY] * 2  # for whom nobody waits


@pytest.mark.slow
def test_what_comes_too_late_is_dropped_and_trained_again(tmp_path):
    """With one backup of two members each round takes one contribution, which counts whole."""
    task = counting_task.CountingTask(records=80 * BATCH, step_seconds=0.01)
    manifest = counting_task.write(tmp_path, task, [40 * BATCH] * 2)
    mode = Sync(backup_workers=1)
    trainer = Trainer(manifest, task, batch_size=BATCH, members=2, mode=mode)
    with barrier_of(trainer) as begin:
        for closure in [begin(member, count=0) for member in range(2)]:
            assert steps_of(closure) == (1, 0)  # they take a while to begin, the first time
        closures = [begin(member, count=40 * BATCH) for member in range(2)]
        assert [steps_of(closure) for closure in closures] == [(2, 40)] * 2
        status = trainer.barrier.status()
    assert status.round == trainer.steps() == 80
    assert status.dropped > 0
    assert set(trainer.store.read_table(0)[:, 0]) == {1.0}


@pytest.mark.slow
def test_a_member_that_was_given_up_trains_again_what_it_sends_too_late(tmp_path):
    """Stopped between sending and saying so: the rounds that close meanwhile throw it away."""
    task = counting_task.CountingTask(records=80 * BATCH)
    manifest = counting_task.write(tmp_path, task, [40 * BATCH] * 2)
    trainer = Trainer(manifest, task, batch_size=BATCH, members=2, mode=Sync(), shuffle_buffer=0)
    barrier, is_going = trainer.barrier, tf.Variable(False)

    def send(token, gradients, trained):
        sent, trained = type(barrier)._send(barrier, token, gradients, trained)
        with tf.control_dependencies(sent):
            may_go = tf.while_loop(
                lambda goes: ~goes, lambda _: (is_going | tf.not_equal(token[0], 1),), (False,)
            )
        return [*sent, may_go[0].op], trained

    barrier._send = send
    with barrier_of(trainer) as begin:
        barrier.expect([0, 1])
        stopped, other = begin(1, count=7 * BATCH), begin(0, count=6 * BATCH)
        wait_until(lambda: barrier.status().states == [MemberState.ARRIVED, MemberState.AWAITED])
        wait_until(lambda: all(int(queue.size()) == 2 for queue in queues_of(barrier)))
        barrier.leave([1])
        assert steps_of(other) == (1, 6)
        barrier.leave([0])
        is_going.assign(True)
        assert steps_of(stopped) == (1, 7)
        assert barrier.status()[:2] == (13, 1)
    trained = trainer.store.read_table(0)[:, 0]
    assert set(trained[: 6 * BATCH]) == set(trained[40 * BATCH : 47 * BATCH]) == {1.0}


def queues_of(barrier):
    return barrier._contributions._queues


def test_nobody_is_further_ahead_of_the_slowest_than_allowed(manifest):
    mode = Bounded(max_staleness=2)
    trainer = reused(manifest, task=Plain(), batch_size=BATCH, members=2, mode=mode)
    with barrier_of(trainer) as begin:
        trainer.barrier.expect([0, 1])
        fast = begin(0, count=10 * BATCH)
        wait_until(lambda: MemberState.ARRIVED in trainer.barrier.status().states)
        time.sleep(0.3)
        assert trainer.steps() == 3  # the third is further ahead than two
        slow = begin(1, count=10 * BATCH)
        assert steps_of(slow) == steps_of(fast) == (1, 10)
        trainer.barrier.leave([1])
        trainer.progress.clear({0: 0})
        assert steps_of(begin(0, first=10 * BATCH, count=10 * BATCH)) == (1, 10)
    assert trainer.steps() == 30
    assert trainer.barrier.status().dropped == 0


@pytest.mark.slow
def test_what_is_pulled_ahead_counts_into_the_bound(manifest):
    """One ahead of at most two: the second step is the last without anything of the slowest."""
    mode = Bounded(max_staleness=2)
    ahead = Trainer(manifest, Plain(), batch_size=BATCH, members=2, mode=mode, pipeline_depth=1)
    with barrier_of(ahead) as begin:
        ahead.barrier.expect([0, 1])
        fast = begin(0, count=10 * BATCH)
        wait_until(lambda: MemberState.ARRIVED in ahead.barrier.status().states)
        time.sleep(0.3)
        assert ahead.steps() == 2
        slow = begin(1, count=10 * BATCH)
        assert steps_of(slow) == steps_of(fast) == (1, 10)
    assert ahead.steps() == 20
    assert ahead.store.staleness.report().mean > 0


def test_a_lost_member_is_not_waited_for_and_joins_where_the_slowest_is(manifest):
    mode = Bounded(max_staleness=2)
    trainer = reused(manifest, task=Plain(), batch_size=BATCH, members=2, mode=mode)
    with barrier_of(trainer) as begin:
        trainer.barrier.expect([0, 1])
        other = begin(0, count=20 * BATCH)
        wait_until(lambda: MemberState.ARRIVED in trainer.barrier.status().states)
        trainer.barrier.leave([1])
        assert steps_of(other) == (1, 20)
        trainer.progress.clear({0: 0})
        late = begin(1, count=5 * BATCH)  # has not to make up for the twenty
        assert steps_of(begin(0, first=20 * BATCH, count=5 * BATCH)) == (1, 5)
        assert steps_of(late) == (1, 5)
    assert trainer.steps() == 30


def wait_until(condition):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
