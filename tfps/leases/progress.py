"""The progress of leases in flight, kept on a ps next to the parameters."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.store.messages import Note
from tfps.store.mutex import Mutex

_NO_WORKER = np.int64(-1)
REFUSED = -1  # number of an attempt at a lease that its lane does not hold


@dataclasses.dataclass(frozen=True)
class LaneProgress:
    """Progress of a lane's lease: attempts, the last worker or -1, bad records left out."""

    attempts: int
    worker: int
    steps: int
    bad: int
    loss_sum: float


NO_PROGRESS = LaneProgress(0, int(_NO_WORKER), 0, 0, 0.0)


class Attempt(NamedTuple):
    """A worker's attempt at the lease in a lane.

    `number` counts the lane's attempts, scalar int64; the last one holds the lease; `REFUSED` where
    the lane has another lease. `steps` are batches trained before it, scalar int64.
    """

    number: tf.Tensor
    steps: tf.Tensor


class LeaseProgress:
    """A small table on the first ps with one lane per lease in flight.

    A worker advances its lane with each push or after it, so that a lease whose worker was lost
    continues with the first batch that was not recorded: at most one batch is trained twice, more
    only where parameters are pulled ahead or batches exchanged together, and none is left out. A
    worker that was stopped for a while, and taken for dead, may continue with a lease that is no
    longer its own until it notices; what it trains so is counted apart. One that begins when its
    lane holds another lease by then is refused.

    Who begins, who advances and who gives a lane to another lease do so in turn: between the look
    at a lane and the change nothing happens to it.
    """

    def __init__(self, lanes: int, device: str):
        self._lanes = lanes
        self._device = device
        with tf.device(device):
            self._values = tf.Variable(tf.zeros([lanes, 4], tf.float64), trainable=False)
            self._workers = tf.Variable(tf.fill([lanes], _NO_WORKER), trainable=False)
            self._leases = tf.Variable(tf.zeros([lanes], tf.int64), trainable=False)
            self._numbers = tf.Variable(tf.zeros([lanes], tf.int64), trainable=False)
            self._orphaned_batches = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self._mutex = Mutex("lease-progress", device)
        pairs = tf.TensorSpec([None, 2], tf.int64)  # of any number of lanes: traced once
        clear = self._mutex.guard(self._cleared)
        self._clear = tf.function(clear, input_signature=[pairs], autograph=False)
        self._advance = self._mutex.guard(self._advanced)

    def place(self, lane: int, lease: int) -> int:
        """What names a lane and the lease that it holds, in one number."""
        return lease * self._lanes + lane

    def lane_of(self, place: tf.Tensor) -> tf.Tensor:
        """In a closure: the lane of a place, scalar int64."""
        return place % self._lanes

    def clear(self, leases: Mapping[int, int]) -> None:
        """Gives lanes new leases, by number; any other number is refused from now on."""
        self._clear(tf.constant(list(leases.items()), tf.int64))

    def begin(
        self,
        place: tf.Tensor,
        worker: tf.Tensor,
        announce: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Operation] | None = None,
    ) -> Attempt:
        """In a closure: begins an attempt, unless the lane holds another lease.

        `announce` gets lane, attempt number and whether it began (scalar bool), on the ps, before
        anything else can happen to the lane.
        """

        def begun(message: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
            place, worker = tf.unstack(message)
            lane, lease = self.lane_of(place), place // self._lanes
            is_its = tf.equal(self._leases.sparse_read(lane), lease)
            last, holder = self._numbers.sparse_read(lane), self._workers.sparse_read(lane)
            number = tf.where(is_its, last + 1, tf.constant(REFUSED, tf.int64))
            steps = tf.cast(self._values.sparse_read(lane)[1], tf.int64)
            counted = tf.cast(tf.stack([is_its, False, False, False]), tf.float64)
            writes = [
                self._add(self._values, lane, counted),
                self._set(self._workers, lane, tf.where(is_its, worker, holder)),
                self._set(self._numbers, lane, tf.maximum(last, number)),
            ]
            if announce:
                writes.append(announce(lane, number, is_its))
            return tf.stack([number, steps]), writes

        message = tf.stack([place, worker])
        with tf.device(self._device):
            return Attempt(*tf.unstack(self._mutex.guard(begun)(message)))

    def advance(
        self,
        lane: tf.Tensor,
        attempt: tf.Tensor,
        change: tf.Tensor,
        after: Sequence[tf.Tensor | tf.Operation] = (),
    ) -> None:
        """In a closure: adds `change`, `[0, steps, bad, loss_sum]` float64, after a push.

        Nothing is added where the attempt no longer holds the lease. Waits for `after` on the ps.
        """
        note = self.note(lane, attempt, change)
        with tf.device(self._device), tf.control_dependencies(after):
            note.deliver(note.numbers)

    def note(self, lane: tf.Tensor, attempt: tf.Tensor, change: tf.Tensor) -> Note:
        """In a closure: the same as a note, to travel with a push and be recorded behind it."""
        # One tensor: each one that travels to a ps costs a message of its own.
        numbers = tf.cast(tf.stack([lane, attempt]), tf.float64)
        return Note(tf.concat([numbers, change], 0), self._advance)

    def holds(self, lane: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """In a closure: whether an attempt, given by its number, still holds the lane's lease."""
        asked = tf.stack([lane, attempt])
        with tf.device(self._device):
            return self._is_last(*tf.unstack(asked))

    def add_orphaned_batches(self, batches: tf.Tensor) -> tf.Operation:
        """Adds to `orphaned_batches`, on the ps: scalar float64."""
        with tf.device(self._device):
            return self._orphaned_batches.assign_add(batches, read_value=False)

    def result(self, lane: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """In a closure: `[attempts, steps, bad, loss_sum]` float64; steps -1 for a lost lease."""
        asked = tf.stack([lane, attempt])
        with tf.device(self._device):
            lane, attempt = tf.unstack(asked)
            found = self._values.sparse_read(lane)
            with tf.control_dependencies([found]):  # what was its own is so after the look
                is_its = self._is_last(lane, attempt)
            no_steps = tf.constant([0, -1, 0, 0], tf.float64)
            return tf.where(is_its, found, no_steps)

    def orphaned_batches(self) -> int:
        """On the chief: batches that were trained by attempts that held their lease no more."""
        return int(self._orphaned_batches.numpy())

    def add(self, changes: tf.Tensor) -> tf.Operation:
        """Adds to all lanes, on the ps: `[lanes, 4]` float64, as `advance` adds to one."""
        with tf.device(self._device):
            return self._values.assign_add(changes, read_value=False)

    def add_to(self, lane: tf.Tensor, change: tf.Tensor) -> tf.Operation:
        """Adds `[4]` float64 to a lane, on the ps."""
        with tf.device(self._device):
            return self._add(self._values, tf.cast(lane, tf.int64), change)

    def lane(self, lane: tf.Tensor) -> tf.Tensor:
        """A lane's `[attempts, steps, bad, loss_sum]`, float64."""
        with tf.device(self._device):
            return self._values.sparse_read(lane)

    def read(self) -> list[LaneProgress]:
        """All lanes, on the chief."""
        workers, values = self._workers.numpy().tolist(), self._values.numpy().tolist()
        return [
            LaneProgress(int(attempts), worker, int(steps), int(bad), loss_sum)
            for worker, (attempts, steps, bad, loss_sum) in zip(workers, values, strict=True)
        ]

    def _cleared(self, message: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
        lanes, leases = tf.unstack(message, axis=1)
        return tf.size(lanes), [
            self._set(self._values, lanes, tf.zeros([tf.size(lanes), 4], tf.float64)),
            self._set(self._workers, lanes, tf.fill([tf.size(lanes)], _NO_WORKER)),
            self._set(self._leases, lanes, leases),
        ]

    def _advanced(self, message: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
        lane, attempt = tf.unstack(tf.cast(message[:2], tf.int64))
        is_its, nothing = self._is_last(lane, attempt), tf.zeros([4], tf.float64)
        change = tf.where(is_its, message[2:], nothing)
        orphaned = tf.where(is_its, nothing, message[2:])[1]
        return change, [
            self._add(self._values, lane, change),
            self._orphaned_batches.assign_add(orphaned, read_value=False),
        ]

    def _is_last(self, lane: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """On the ps: whether no attempt began, and no other lease was given, after this one."""
        is_last = tf.equal(self._numbers.sparse_read(lane), attempt)
        return is_last & (self._workers.sparse_read(lane) >= 0)

    def _set(self, variable: tf.Variable, lane: tf.Tensor, value: tf.Tensor) -> tf.Operation:
        return tf.raw_ops.ResourceScatterUpdate(
            resource=variable.handle, indices=lane, updates=value
        )

    def _add(self, variable: tf.Variable, lane: tf.Tensor, value: tf.Tensor) -> tf.Operation:
        return tf.raw_ops.ResourceScatterAdd(resource=variable.handle, indices=lane, updates=value)
