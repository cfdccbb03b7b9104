"""Closures of a few lines of Python, which do with the real progress what closures do with it.

They do one action after the other, so that anything may happen between two of them. What they push
is counted by record.
"""

import concurrent.futures

import numpy as np
import tensorflow as tf

from tfps.data.manifest import Manifest
from tfps.data.shards import RecordIndex, Shard
from tfps.data.training_data import TrainingData
from tfps.leases.lease import EpochOrder
from tfps.leases.progress import REFUSED, LeaseProgress

BATCH, WORKERS, EPOCHS, STRIDE = 4, 2, 2, 1000
SIZES = (30, 9, 13)
FIRST = dict(zip(("s0", "s1", "s2"), np.cumsum([0, *SIZES]), strict=False))
ORDER = EpochOrder(batch_size=BATCH, shuffle_buffer=0, seed=0)
SHARDS = tuple(Shard(f"s{k}", size, 100, "") for k, size in enumerate(SIZES))
INDEX = RecordIndex(STRIDE, tuple(np.zeros(1, np.int64) for _ in SHARDS))
DATA = TrainingData.of(Manifest(name="d", features=[], labels=[], shards=SHARDS, index=INDEX))
BAD = [(0, 0), (0, 9), (0, 10), (1, 8), (2, 3)]  # shard and number of records that may be bad
LOOKS = 2  # steps from one look at whether the lease is held to the next
_UNTIMED = (0.0, 0.0, 0.0)  # what a closure's exchanges took


class Places:
    """The progress, made once with what is traced for it.

    Where a chief begins again, nobody has the old lanes.
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
        numbers = [attempts, steps, bad, loss, -1, self.worker, 0.0, 1.0]
        self.result = np.array([*numbers, *_UNTIMED])

    def _read(self, source, batch, end):
        """Rows of a batch's good records and the number of bad ones; None if one is unknown."""
        source = source.unpack()
        shard = source.path.numpy().decode().rpartition("/")[2]
        records = set(range(batch * BATCH, min((batch + 1) * BATCH, end)))
        ranges = {int(first) for first, *_ in source.bad_ranges.numpy()}
        bad = {number for where, number in self._machine.bad if f"s{where}" == shard} & records
        if bad - ranges:
            return None
        return [FIRST[shard] + number for number in sorted(records - bad)], len(bad)
