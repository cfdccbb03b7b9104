"""Leases, whatever happens to workers and chief, in any order: a model check.

Queue, progress and chief are the real ones. Closures are a few lines of Python that do with the
progress what closures do with it, one action after the other, so that anything may happen between
two of them. What they push is counted by record.
"""

import concurrent.futures
import json
import types

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tfps.coordinator import Coordinator
from tfps.data.manifest import Manifest
from tfps.data.record_index import RecordIndex
from tfps.data.shard import Shard
from tfps.epoch_order import EpochOrder
from tfps.lease_queue import LeaseQueue, QueueState
from tfps.store.lease_progress import REFUSED, LeaseProgress
from tfps.task_watch import TaskWatch

BATCH, WORKERS, EPOCHS, STRIDE = 4, 2, 2, 1000
SIZES = (30, 9, 13)
FIRST = dict(zip(("s0", "s1", "s2"), np.cumsum([0, *SIZES]), strict=False))
ORDER = EpochOrder(batch_size=BATCH, shuffle_buffer=0, seed=0)
SHARDS = tuple(Shard(f"s{k}", size, 100, "") for k, size in enumerate(SIZES))
DATA = Manifest(
    "d", [], [], SHARDS, RecordIndex(STRIDE, tuple(np.zeros(1, np.int64) for _ in SHARDS))
)
SELDOM = st.integers(0, 3).map(lambda drawn: drawn == 3)
LOOKS = 2  # steps from one look at whether the lease is held to the next
# Made once, with what is traced for it: where a chief begins anew, nobody has the old slots.
PROGRESS = LeaseProgress(2 * WORKERS, "/device:CPU:0")
BEGIN = tf.function(
    lambda message: tf.stack(PROGRESS.begin(message[0], message[1])),
    input_signature=[tf.TensorSpec([2], tf.int64)],
    autograph=False,
)


class Bad:
    """Bad records, which the chief knows once it has looked for them."""

    def __init__(self, all_bad, known=()):
        self._bad, self._known = all_bad, set(map(tuple, known))

    def gaps(self, shard, first, end):
        known = sorted(number for where, number in self._known if where == shard)
        return tuple((number, 1, 0) for number in known if first <= number < end)

    def look(self, shard, source, first, end, doing):
        found = {each for each in self._bad if each[0] == shard and first <= each[1] < end}
        assert found - self._known, f"a worker cannot read {first} to {end}, but the chief can"
        self._known |= found

    def state(self):
        return tuple(sorted(self._known))


class Executor:
    """Workers take what waits here when the check lets them."""

    workers = tuple(range(WORKERS))

    def __init__(self):
        self.waiting = []

    def schedule(self, closure, args):
        future = concurrent.futures.Future()
        self.waiting.append((future, args))
        return future


class Attempt:
    """A closure on a worker; `act` does the next thing, `result` is there at its end."""

    def __init__(self, machine, future, args, worker):
        self.future, self.args, self.worker = future, args, worker
        self.result = None
        self._machine, self._actions = machine, self._run(*args)

    def act(self):
        next(self._actions, None)

    def _run(self, source, lease):
        first, count, _, place = lease.numpy()
        slot = tf.constant(place % (2 * WORKERS), tf.int64)
        number, trained = BEGIN([place, self.worker]).numpy()
        yield
        held, unrecorded, number = (slot, tf.constant(number, tf.int64)), [], number
        end = -(-(first + count) // BATCH)
        batch = end if number == REFUSED else first // BATCH + trained
        while batch < end and (batch % LOOKS or PROGRESS.holds(*held)):
            records = self._read(source, batch, first + count)
            if records is None:
                break
            good, bad = records
            self._machine.trained[self._machine.queue.epoch][good] += 1
            unrecorded.append(tf.constant([0, 1, bad, 0], tf.float64))
            yield
            if len(unrecorded) == self._machine.lag:
                PROGRESS.advance(*held, unrecorded.pop(0))
                yield
            batch += 1
        for change in unrecorded:
            PROGRESS.advance(*held, change)
            yield
        attempts, steps, bad, loss = PROGRESS.result(*held).numpy()
        self.result = np.array([attempts, steps, bad, loss, -1, self.worker, 0.0, 1.0])

    def _read(self, source, batch, end):
        """Rows of a batch's good records and the number of bad ones; None if one is unknown."""
        shard = source.path.numpy().decode().rpartition("/")[2]
        records = set(range(batch * BATCH, min((batch + 1) * BATCH, end)))
        gaps = {int(gap[0]) for gap in source.gaps.numpy()}
        bad = {number for where, number in self._machine.bad if f"s{where}" == shard} & records
        if bad - gaps:
            return None
        return [FIRST[shard] + number for number in sorted(records - bad)], len(bad)


class Leases(RuleBasedStateMachine):
    """A chief, workers, and closures of workers that were taken for lost ("ghosts")."""

    @initialize(
        lag=st.integers(1, 2),
        bad=st.sets(st.sampled_from([(0, 0), (0, 9), (0, 10), (1, 8), (2, 3)]), max_size=2),
    )
    def begin(self, lag, bad):
        self.lag, self.bad = lag, bad
        self.trained = np.zeros([EPOCHS + 1, sum(SIZES)], np.int64)
        self._connect(QueueState())
        self._save()

    def _connect(self, state):
        self.queue = LeaseQueue(DATA, ORDER, EPOCHS, state, Bad(self.bad, state.bad_records))
        self.executor, self.sent = Executor(), []
        self.running, self.ghosts, self.returned = [], [], []
        train = types.SimpleNamespace(batch_size=BATCH)
        closures = types.SimpleNamespace(train=None, open=None, schema=())
        self.chief = Coordinator(
            self.executor, closures, PROGRESS, TaskWatch({}), train, 600.0, self.lag
        )
        self.strayed = PROGRESS.strayed()

    def _save(self):
        strayed = PROGRESS.strayed()
        self.queue.repeat((strayed - self.strayed) * BATCH)
        self.strayed = strayed
        self.saved = json.dumps(self.queue.state().to_json()), self.trained.copy()

    def _finish(self, attempt):
        attempt.future.set_result(attempt.result)
        self.chief._finish(attempt.future, self.queue)

    @rule(batches=st.lists(st.integers(1, 5), max_size=2 * WORKERS))
    def give(self, batches):
        free = len(self.chief._free_slots)
        leases = [lease for each in batches[:free] if (lease := self.queue.take(each))]
        self.chief._schedule(leases)

    @precondition(lambda self: self.executor.waiting and len(self.running) < WORKERS)
    @rule(worker=st.integers(0, WORKERS - 1))
    def take(self, worker):
        future, args = self.executor.waiting.pop(0)
        self.sent.append(args)
        self.running.append(Attempt(self, future, args, worker))

    @precondition(lambda self: self.running)
    @rule(
        which=st.integers(0, WORKERS - 1),
        actions=st.integers(1, 4),
        age=st.sampled_from([None, 0, 0, 1, 2, 5]),
        late_actions=st.integers(1, 6),
    )
    def work(self, which, actions, age, late_actions):
        """A worker does something, then perhaps a closure begins once more, late."""
        self._act(self.running[which % len(self.running)], actions)
        if age is not None:
            late = Attempt(self, None, self.sent[-1 - age % len(self.sent)], worker=0)
            self.ghosts.append(late)
            self._act(late, late_actions)

    def _act(self, attempt, actions):
        for _ in range(actions):
            attempt.act()
        if attempt.result is not None and attempt in self.running:
            self.running.remove(attempt)
            self.returned.append(attempt)

    @precondition(lambda self: self.returned)
    @rule()
    def answer(self):
        self._finish(self.returned.pop(0))

    @precondition(lambda self: self.returned)
    @rule()
    def lose_result(self):
        attempt = self.returned.pop(0)
        self.executor.waiting.append((attempt.future, attempt.args))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, WORKERS - 1), dies=st.booleans())
    def lose_worker(self, which, dies):
        attempt = self.running.pop(which % len(self.running))
        self.executor.waiting.insert(0, (attempt.future, attempt.args))
        if not dies:
            self.ghosts.append(attempt)

    @precondition(lambda self: self.ghosts)
    @rule(which=st.integers(0, 1 << 20), actions=st.integers(1, 9))
    def haunt(self, which, actions):
        self._act(self.ghosts[which % len(self.ghosts)], actions)

    @precondition(lambda self: self.ghosts)
    @rule(which=st.integers(0, 1 << 20))
    def lay(self, which):
        self.ghosts.pop(which % len(self.ghosts))

    @rule(is_due=SELDOM)
    def save(self, is_due):
        if is_due:
            self._pause()

    def _pause(self):
        """Lets what is in flight finish, and saves."""
        while self.chief._in_flight:
            while self.executor.waiting and len(self.running) < WORKERS:
                self.take(0)
            for attempt in list(self.running):
                self._act(attempt, 1)
            while self.returned:
                self.answer()
        self.chief._schedule([])
        assert self.queue.idle
        if self.queue.epoch_finished and not self.queue.finished:
            self.queue.next_epoch()
        self._save()

    @rule(is_lost=SELDOM)
    def begin_anew(self, is_lost):
        """The chief is lost; parameters and queue are those of its last checkpoint."""
        if not is_lost:
            return
        text, trained = self.saved
        self.trained = trained.copy()
        self._connect(QueueState.from_json(json.loads(text)))

    @invariant()
    def what_is_recorded_is_trained(self):
        if not hasattr(self, "queue"):
            return
        assert self.queue.skipped == 0
        rows = PROGRESS.read()
        for slot, lease in self.chief._in_flight.values():
            end = lease.first + min(rows[slot].steps * BATCH, lease.records)
            self._assert_trained(lease, end)

    def _assert_trained(self, lease, end):
        shard = lease.source.path.rpartition("/")[2]
        good = [n for n in range(lease.first, end) if (int(shard[1:]), n) not in self.bad]
        assert (self.trained[lease.epoch][[FIRST[shard] + n for n in good]] >= 1).all()

    def teardown(self):
        """All that is left is trained, and nothing else happens."""
        if not hasattr(self, "queue"):
            return
        while not self.queue.finished:
            self.give([5] * 2 * WORKERS)
            self._pause()
        bad = [FIRST[f"s{shard}"] + number for shard, number in self.bad]
        good = np.delete(self.trained[:EPOCHS], bad, axis=1)
        assert (self.queue.trained, self.queue.bad) == (good.size, EPOCHS * len(bad))
        assert self.queue.skipped == 0
        assert (good >= 1).all()
        assert not self.trained[:, bad].any()
        assert self.trained.sum() - good.size <= self.queue.repeated


def check(examples, steps):
    checks = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Leases, settings=checks)


def test_every_record_is_trained_and_counted():
    check(examples=25, steps=40)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_record_is_trained_and_counted_in_many_more_orders():
    check(examples=1000, steps=100)
