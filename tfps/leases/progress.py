"""How far each lease in flight has come, kept on a ps beside the parameters."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfps.store.mutex import Mutex

_NO_WORKER = np.int64(-1)
REFUSED = -1  # number of an attempt at a lease that its slot does not hold


@dataclasses.dataclass(frozen=True)
class SlotProgress:
    """Progress of the lease in one slot.

    Attributes:
        attempts: How often a worker began it; more than 1 when a worker was lost.
        worker: Index of the worker that began it last; -1 when none has.
        steps: Batches trained.
        bad: Records of these batches that were left out because they are bad.
        loss_sum: Sum over the records trained of the loss of their batch.
    """

    attempts: int
    worker: int
    steps: int
    bad: int
    loss_sum: float


class Attempt(NamedTuple):
    """A worker's attempt at the lease in a slot.

    Attributes:
        number: Which of the attempts at all leases of the slot it is, scalar int64; `REFUSED` where
            the slot holds another lease. The lease is held by the attempt with the slot's last
            number.
        steps: Batches trained before it, scalar int64.
    """

    number: tf.Tensor
    steps: tf.Tensor


class LeaseProgress:
    """A small table on the first ps with one slot per lease in flight.

    A worker advances its slot after each push, so that a lease whose worker was lost goes on with
    the first batch that was not recorded: at most one batch is trained twice, none is left out. One
    that was stopped for a while, and taken for dead, may go on with a lease that it holds no more
    until it notices; what it trains so is counted apart. One that begins when its slot holds
    another lease by then is refused.

    Who begins, who advances and who gives a slot to another lease do so in turn: between the look
    at a slot and the change nothing happens to it.
    """

    def __init__(self, slots: int, device: str):
        self._slots = slots
        self._device = device
        with tf.device(device):
            self._values = tf.Variable(tf.zeros([slots, 4], tf.float64), trainable=False)
            self._workers = tf.Variable(tf.fill([slots], _NO_WORKER), trainable=False)
            self._leases = tf.Variable(tf.zeros([slots], tf.int64), trainable=False)
            self._numbers = tf.Variable(tf.zeros([slots], tf.int64), trainable=False)
            self._strayed = tf.Variable(0.0, trainable=False, dtype=tf.float64)
        self._mutex = Mutex("lease-progress", device)
        self._clear = self._mutex.guard(self._cleared)
        self._advance = self._mutex.guard(self._advanced)

    def place(self, slot: int, lease: int) -> int:
        """What names a slot and the lease that it holds, in one number.

        Args:
            slot: The slot.
            lease: The lease's number, as `clear` is given it.
        """
        return lease * self._slots + slot

    def slot_of(self, place: tf.Tensor) -> tf.Tensor:
        """In a closure: the slot of a place, scalar int64."""
        return place % self._slots

    def clear(self, slot: int, lease: int = 0) -> None:
        """Makes a slot ready for a new lease; called by the chief.

        Args:
            slot: The slot.
            lease: The lease's number. A closure of any other number is refused from now on, so the
                slot's leases have different ones wherever a closure may be late.
        """
        self._clear(tf.constant([slot, lease], tf.int64))

    def begin(
        self,
        place: tf.Tensor,
        worker: tf.Tensor,
        announce: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Operation] | None = None,
    ) -> Attempt:
        """In a closure: begins an attempt, unless the slot holds another lease.

        Args:
            place: As `place` gives it, scalar int64.
            worker: Index of the worker, scalar int64.
            announce: Given the slot, the attempt's number and whether it has begun, scalar bool,
                tells others of it on the ps, before anything else can happen to the slot.
        """

        def begun(message: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
            place, worker = tf.unstack(message)
            slot, lease = self.slot_of(place), place // self._slots
            is_its = tf.equal(self._leases.sparse_read(slot), lease)
            last, holder = self._numbers.sparse_read(slot), self._workers.sparse_read(slot)
            number = tf.where(is_its, last + 1, tf.constant(REFUSED, tf.int64))
            steps = tf.cast(self._values.sparse_read(slot)[1], tf.int64)
            counted = tf.cast(tf.stack([is_its, False, False, False]), tf.float64)
            writes = [
                self._add(self._values, slot, counted),
                self._set(self._workers, slot, tf.where(is_its, worker, holder)),
                self._set(self._numbers, slot, tf.maximum(last, number)),
            ]
            if announce:
                writes.append(announce(slot, number, is_its))
            return tf.stack([number, steps]), writes

        message = tf.stack([place, worker])
        with tf.device(self._device):
            return Attempt(*tf.unstack(self._mutex.guard(begun)(message)))

    def advance(self, slot: tf.Tensor, attempt: tf.Tensor, change: tf.Tensor) -> None:
        """In a closure: adds to a slot what an attempt has trained, once it is pushed.

        Args:
            slot: The slot, scalar int64.
            attempt: The attempt's number, scalar int64.
            change: `[0, steps, bad, loss_sum]`, float64; left out where the attempt holds the lease
                no more.
        """
        # One tensor: each one that travels to a ps costs a message of its own.
        numbers = tf.cast(tf.stack([slot, attempt]), tf.float64)
        message = tf.concat([numbers, change], 0)
        with tf.device(self._device):
            self._advance(message)

    def holds(self, slot: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """In a closure: whether an attempt, given by its number, still holds the slot's lease."""
        asked = tf.stack([slot, attempt])
        with tf.device(self._device):
            return self._is_last(*tf.unstack(asked))

    def add_strayed(self, batches: tf.Tensor) -> tf.Operation:
        """Adds to `strayed`, on the ps: scalar float64."""
        with tf.device(self._device):
            return self._strayed.assign_add(batches, read_value=False)

    def result(self, slot: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """In a closure: what came of a lease, when an attempt at it ends.

        Returns:
            The slot's `[attempts, steps, bad, loss_sum]`, float64; steps are -1 where the attempt,
            given by its number, holds the lease no more.
        """
        asked = tf.stack([slot, attempt])
        with tf.device(self._device):
            slot, attempt = tf.unstack(asked)
            found = self._values.sparse_read(slot)
            with tf.control_dependencies([found]):  # what was its own is so after the look
                is_its = self._is_last(slot, attempt)
            no_steps = tf.constant([0, -1, 0, 0], tf.float64)
            return tf.where(is_its, found, no_steps)

    def strayed(self) -> int:
        """On the chief: batches that were trained by attempts that held their lease no more."""
        return int(self._strayed.numpy())

    def add(self, changes: tf.Tensor) -> tf.Operation:
        """Adds to all slots, on the ps: `[slots, 4]` float64, as `advance` adds to one."""
        with tf.device(self._device):
            return self._values.assign_add(changes, read_value=False)

    def add_to(self, slot: tf.Tensor, change: tf.Tensor) -> tf.Operation:
        """Adds `[4]` float64 to a slot, on the ps."""
        with tf.device(self._device):
            return self._add(self._values, tf.cast(slot, tf.int64), change)

    def slot(self, slot: tf.Tensor) -> tf.Tensor:
        """A slot's `[attempts, steps, bad, loss_sum]`, float64."""
        with tf.device(self._device):
            return self._values.sparse_read(slot)

    def read(self) -> list[SlotProgress]:
        """All slots, on the chief."""
        workers, values = self._workers.numpy(), self._values.numpy()
        return [
            SlotProgress(int(attempts), int(worker), int(steps), int(bad), float(loss_sum))
            for worker, (attempts, steps, bad, loss_sum) in zip(workers, values, strict=True)
        ]

    def _cleared(self, message: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
        slot, lease = tf.unstack(message)
        return lease, [
            self._set(self._values, slot, tf.zeros([4], tf.float64)),
            self._set(self._workers, slot, tf.constant(_NO_WORKER)),
            self._set(self._leases, slot, lease),
        ]

    def _advanced(self, message: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
        slot, attempt = tf.unstack(tf.cast(message[:2], tf.int64))
        is_its, nothing = self._is_last(slot, attempt), tf.zeros([4], tf.float64)
        change = tf.where(is_its, message[2:], nothing)
        strayed = tf.where(is_its, nothing, message[2:])[1]
        return change, [
            self._add(self._values, slot, change),
            self._strayed.assign_add(strayed, read_value=False),
        ]

    def _is_last(self, slot: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """On the ps: whether no attempt began, and no other lease was given, after this one."""
        is_last = tf.equal(self._numbers.sparse_read(slot), attempt)
        return is_last & (self._workers.sparse_read(slot) >= 0)

    def _set(self, variable: tf.Variable, slot: tf.Tensor, value: tf.Tensor) -> tf.Operation:
        return tf.raw_ops.ResourceScatterUpdate(
            resource=variable.handle, indices=slot, updates=value
        )

    def _add(self, variable: tf.Variable, slot: tf.Tensor, value: tf.Tensor) -> tf.Operation:
        return tf.raw_ops.ResourceScatterAdd(resource=variable.handle, indices=slot, updates=value)
