"""Leases, whatever happens to workers and chief, in any order: a model check.

Queue, progress and chief are the real ones; closures are those of `closure_model`.
"""

import dataclasses
import functools
import json
import random
import types

import msgspec
import numpy as np

from tests.leases.closure_model import (
    BAD,
    BATCH,
    DATA,
    EPOCHS,
    FIRST,
    ORDER,
    SIZES,
    WORKERS,
    Attempt,
    Bad,
    Executor,
    Places,
)
from tfps.cluster.monitor import TaskMonitor
from tfps.coordinator.worker_coordinator import WorkerCoordinator
from tfps.leases.queue import LeaseQueue, QueueState

MOST_ROUNDS = 1000  # of all workers, until what is in flight is done


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
        closures = types.SimpleNamespace(train=None, open=None, schema=(), judged=())
        parts = (
            self.executor,
            closures,
            self.places.progress,
            TaskMonitor({}),
            600.0,
            lambda: self.lag,
        )
        self.chief = self._chief_kind(*parts)
        self.orphaned = self.places.progress.orphaned_batches()

    def _save(self):
        orphaned = self.places.progress.orphaned_batches()
        self.queue.repeat((orphaned - self.orphaned) * BATCH)
        self.orphaned = orphaned
        self.saved = json.dumps(dataclasses.asdict(self.queue.state())), self.trained.copy()

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
        self.chief.assign(leases)

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
        self.chief.assign([])
        assert self.queue.idle
        if self.queue.epoch_finished and not self.queue.finished:
            self.queue.next_epoch()
        self._save()

    def begin_anew(self, drawn):
        """The chief is lost; parameters and queue are those of its last checkpoint."""
        text, trained = self.saved
        self.trained = trained.copy()
        self._connect(msgspec.convert(json.loads(text), QueueState))

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
            self.chief.assign(
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
        self.chief.handle_result(attempt.future, self.queue)

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
