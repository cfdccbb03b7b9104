"""Leases, whatever happens to workers and chief, in any order: a model check.

Queue, progress and chief are the real ones. Closures are a few lines of Python that do with the
progress what closures do with it, one action after the other, so that anything may happen between
two of them. What they push is counted by record.
"""

import concurrent.futures
import functools
import json
import random
import types

import numpy as np
import pytest
import tensorflow as tf

from tfps.cluster.monitor import TaskMonitor
from tfps.coordinator.worker_coordinator import WorkerCoordinator
from tfps.data.manifest import Manifest
from tfps.data.record_index import RecordIndex
from tfps.data.shards import Shard
from tfps.leases.epoch_order import EpochOrder
from tfps.leases.progress import REFUSED, LeaseProgress
from tfps.leases.queue import LeaseQueue
from tfps.leases.queue_state import QueueState

BATCH, WORKERS, EPOCHS, STRIDE = 4, 2, 2, 1000
SIZES = (30, 9, 13)
FIRST = dict(zip(("s0", "s1", "s2"), np.cumsum([0, *SIZES]), strict=False))
ORDER = EpochOrder(batch_size=BATCH, shuffle_buffer=0, seed=0)
SHARDS = tuple(Shard(f"s{k}", size, 100, "") for k, size in enumerate(SIZES))
DATA = Manifest(
    "d", [], [], SHARDS, RecordIndex(STRIDE, tuple(np.zeros(1, np.int64) for _ in SHARDS))
)
BAD = [(0, 0), (0, 9), (0, 10), (1, 8), (2, 3)]  # shard and number of records that may be bad
MOST_ROUNDS = 1000  # of all workers, until what is in flight is done
LOOKS = 2  # steps from one look at whether the lease is held to the next


class Places:
    """The progress, made once with what is traced for it.

    Where a chief begins anew, nobody has the old lanes.
    """

    def __init__(self, kind=LeaseProgress):
        self.progress = kind(2 * WORKERS, "/device:CPU:0")
        self._begin = tf.function(
            lambda message: tf.stack(self.progress.begin(message[0], message[1])),
            input_signature=[tf.TensorSpec([2], tf.int64)],
            autograph=False,
        )

    def begin(self, place, worker):
        return self._begin([place, worker]).numpy()


class Bad:
    """Bad records, which the chief knows once it has looked for them."""

    def __init__(self, all_bad, known=()):
        self._bad, self._known = all_bad, set(map(tuple, known))

    def bad_ranges(self, shard, first, end):
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
        lane = tf.constant(place % (2 * WORKERS), tf.int64)
        places, progress = self._machine.places, self._machine.places.progress
        number, trained = places.begin(place, self.worker)
        yield
        held, unrecorded, number = (lane, tf.constant(number, tf.int64)), [], number
        end = -(-(first + count) // BATCH)
        batch = end if number == REFUSED else first // BATCH + trained
        while batch < end and (batch % LOOKS or progress.holds(*held)):
            records = self._read(source, batch, first + count)
            if records is None:
                break
            good, bad = records
            self._machine.trained[self._machine.queue.epoch][good] += 1
            unrecorded.append(tf.constant([0, 1, bad, 0], tf.float64))
            yield
            if len(unrecorded) == self._machine.lag:
                progress.advance(*held, unrecorded.pop(0))
                yield
            batch += 1
        for change in unrecorded:
            progress.advance(*held, change)
            yield
        attempts, steps, bad, loss = progress.result(*held).numpy()
        self.result = np.array([attempts, steps, bad, loss, -1, self.worker, 0.0, 1.0])

    def _read(self, source, batch, end):
        """Rows of a batch's good records and the number of bad ones; None if one is unknown."""
        shard = source.path.numpy().decode().rpartition("/")[2]
        records = set(range(batch * BATCH, min((batch + 1) * BATCH, end)))
        ranges = {int(first) for first, _, _ in source.bad_ranges.numpy()}
        bad = {number for where, number in self._machine.bad if f"s{where}" == shard} & records
        if bad - ranges:
            return None
        return [FIRST[shard] + number for number in sorted(records - bad)], len(bad)


class Leases:
    """A chief, workers, and closures of workers that were taken for lost ("ghosts")."""

    def __init__(self, drawn, places, chief=WorkerCoordinator):
        self.places, self._chief_kind = places, chief
        self.lag = drawn.choice([1, 2])
        self.bad = set(drawn.sample(BAD, drawn.choice([0, 0, 1, 2])))
        self.trained = np.zeros([EPOCHS + 1, sum(SIZES)], np.int64)
        self._connect(QueueState())
        self._save()

    def _connect(self, state):
        self.queue = LeaseQueue(DATA, ORDER, EPOCHS, state, Bad(self.bad, state.bad_records))
        self.executor, self.sent = Executor(), []
        self.running, self.ghosts, self.returned = [], [], []
        closures = types.SimpleNamespace(train=None, open=None, schema=())
        parts = (
            self.executor,
            closures,
            self.places.progress,
            TaskMonitor({}),
            600.0,
            self.lag,
        )
        self.chief = self._chief_kind(*parts)
        self.orphaned = self.places.progress.orphaned_batches()

    def _save(self):
        orphaned = self.places.progress.orphaned_batches()
        self.queue.repeat((orphaned - self.orphaned) * BATCH)
        self.orphaned = orphaned
        self.saved = json.dumps(self.queue.state().to_json()), self.trained.copy()

    def happen(self, drawn):
        """One of the things that can be next does."""
        things = {
            self.give: 2,
            self.take: 6 * (bool(self.executor.waiting) and len(self.running) < WORKERS),
            self.work: 8 * bool(self.running),
            self.answer: 3 * bool(self.returned),
            self.lose_result: bool(self.returned),
            self.lose_worker: bool(self.running),
            self.begin_late: bool(self.sent),
            self.haunt: 4 * bool(self.ghosts),
            self.pause: 0.5,
            self.begin_anew: 0.2,
        }
        [thing] = drawn.choices(list(things), list(things.values()))
        thing(drawn)

    def give(self, drawn):
        free = self.chief.lanes.free
        batches = [drawn.randint(1, 5) for _ in range(drawn.randint(0, free))]
        leases = [lease for each in batches if (lease := self.queue.take(each))]
        self.chief.give_out(leases)

    def take(self, drawn):
        self._begin(drawn.randrange(WORKERS))

    def work(self, drawn):
        self._act(drawn.choice(self.running), drawn.randint(1, 4))

    def answer(self, drawn):
        self._answer()

    def lose_result(self, drawn):
        """A worker dies with what came of its closure."""
        attempt = self.returned.pop(0)
        self.executor.waiting.append((attempt.future, attempt.args))

    def lose_worker(self, drawn):
        """A worker dies, or is only taken for dead."""
        attempt = self.running.pop(drawn.randrange(len(self.running)))
        self.executor.waiting.insert(0, (attempt.future, attempt.args))
        if drawn.random() < 0.7:
            self.ghosts.append(attempt)

    def begin_late(self, drawn):
        """A worker that nobody waits for begins one of the last closures."""
        late = Attempt(self, None, drawn.choice(self.sent[-6:]), worker=0)
        self.ghosts.append(late)
        self._act(late, drawn.randint(1, 6))

    def haunt(self, drawn):
        ghost = drawn.choice(self.ghosts)
        self._act(ghost, drawn.randint(1, 9))
        if ghost.result is not None or drawn.random() < 0.1:
            self.ghosts.remove(ghost)

    def pause(self, drawn):
        self._pause()

    def _pause(self):
        """Lets what is in flight finish, and saves."""
        for _ in range(MOST_ROUNDS):
            if not self.chief.lanes.leases:
                break
            while self.executor.waiting and len(self.running) < WORKERS:
                self._begin(worker=len(self.running))
            for attempt in list(self.running):
                self._act(attempt, 1)
            while self.returned:
                self._answer()
        else:
            raise AssertionError("the leases in flight come to no end")
        self.chief.give_out([])
        assert self.queue.idle
        if self.queue.epoch_finished and not self.queue.finished:
            self.queue.next_epoch()
        self._save()

    def begin_anew(self, drawn):
        """The chief is lost; parameters and queue are those of its last checkpoint."""
        text, trained = self.saved
        self.trained = trained.copy()
        self._connect(QueueState.from_json(json.loads(text)))

    def check(self):
        """What is recorded is trained."""
        assert self.queue.skipped == 0
        rows = self.places.progress.read()
        for lane, lease in self.chief.lanes.leases.items():
            end = lease.first + min(rows[lane].steps * BATCH, lease.records)
            self._check_trained(lease, end)

    def finish(self):
        """Lets everything come to its end, where nothing else happens: all is trained."""
        while not self.queue.finished:
            self.chief.give_out(
                [lease for _ in range(self.chief.lanes.free) if (lease := self.queue.take(5))]
            )
            self._pause()
        bad = [FIRST[f"s{shard}"] + number for shard, number in self.bad]
        good = np.delete(self.trained[:EPOCHS], bad, axis=1)
        assert (self.queue.trained, self.queue.bad) == (good.size, EPOCHS * len(bad))
        assert self.queue.skipped == 0
        assert (good >= 1).all()
        assert not self.trained[:, bad].any()
        assert self.trained.sum() - good.size <= self.queue.repeated

    def _act(self, attempt, actions):
        for _ in range(actions):
            attempt.act()
        if attempt.result is not None and attempt in self.running:
            self.running.remove(attempt)
            self.returned.append(attempt)

    def _begin(self, worker):
        future, args = self.executor.waiting.pop(0)
        self.sent.append(args)
        self.running.append(Attempt(self, future, args, worker))

    def _answer(self):
        attempt = self.returned.pop(0)
        attempt.future.set_result(attempt.result)
        self.chief.take_result(attempt.future, self.queue)

    def _check_trained(self, lease, end):
        shard = lease.source.path.rpartition("/")[2]
        good = [n for n in range(lease.first, end) if (int(shard[1:]), n) not in self.bad]
        assert (self.trained[lease.epoch][[FIRST[shard] + n for n in good]] >= 1).all()


@functools.cache
def right_places():
    return Places()


def explore(seeds, places=None, chief=WorkerCoordinator):
    """Lets leases live through what each seed draws, then come to their end.

    Args:
        seeds: The seeds.
        places: With another progress than the right one.
        chief: Its class.
    """
    for seed in seeds:
        drawn = random.Random(seed)
        leases = Leases(drawn, places or right_places(), chief)
        for _ in range(drawn.randrange(80)):
            leases.happen(drawn)
            leases.check()
        leases.finish()


def test_every_record_is_trained_and_counted():
    explore(range(30))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_record_is_trained_and_counted_in_many_more_orders():
    explore(range(30, 1000))


class AcceptsAnyLease(LeaseProgress):
    """Lets a closure begin though its lane has been given to another lease."""

    def place(self, lane, lease):
        return lane

    def clear(self, lane, lease=0):
        super().clear(lane, 0)


class CountsWhoHoldsNothing(LeaseProgress):
    """Counts what a closure trains whose lease another has begun."""

    def _is_last(self, lane, attempt):
        return self._workers.sparse_read(lane) >= 0


class TakesEveryEnd(WorkerCoordinator):
    """Takes the end of a closure that was displaced for the end of its lease."""

    def _result(self, future, doing, source):
        attempts, steps, *rest = super()._result(future, doing, source)
        return np.array([max(attempts, 1), 1 << 20 if steps < 0 else steps, *rest])


@pytest.mark.parametrize("progress", [AcceptsAnyLease, CountsWhoHoldsNothing])
def test_a_wrong_progress_is_found(progress):
    places = Places(progress)
    with pytest.raises(AssertionError):
        explore(range(200), places)


def test_a_wrong_chief_is_found():
    with pytest.raises(AssertionError):
        explore(range(200), chief=TakesEveryEnd)
