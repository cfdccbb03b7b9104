"""How far each lease in flight has come, kept on a ps beside the parameters."""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

_NO_WORKER = np.int64(-1)


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
        number: Which of the attempts at all leases of the slot it is, scalar int64. The lease is
            held by the attempt with the slot's last number.
        steps: Batches trained before it, scalar int64.
    """

    number: tf.Tensor
    steps: tf.Tensor


class LeaseProgress:
    """A small table on the first ps with one slot per lease in flight.

    A worker advances its slot after each push, so that a lease whose worker was lost goes on with
    the first batch that was not recorded: at most one batch is trained twice, none is left out. One
    that was stopped for a while, and taken for dead, may go on with a lease that it holds no more
    until it notices; what it trains so is counted apart.
    """

    def __init__(self, slots: int, device: str):
        self._device = device
        with tf.device(device):
            self._values = tf.Variable(tf.zeros([slots, 4], tf.float64), trainable=False)
            self._workers = tf.Variable(tf.fill([slots], _NO_WORKER), trainable=False)
            self._numbers = tf.Variable(tf.zeros([slots], tf.int64), trainable=False)
            self._strayed = tf.Variable(0.0, trainable=False, dtype=tf.float64)

    def clear(self, slot: int) -> None:
        """Makes a slot ready for a new lease; called by the chief."""
        with tf.device(self._device):
            self._values.scatter_update(tf.IndexedSlices(tf.zeros([4], tf.float64), slot))
            self._workers.scatter_update(tf.IndexedSlices(_NO_WORKER, slot))
            self._numbers.scatter_add(tf.IndexedSlices(np.int64(1), slot))

    def begin(self, slot: tf.Tensor, worker: tf.Tensor) -> Attempt:
        """In a closure: begins an attempt."""
        with tf.device(self._device):
            self._workers.scatter_update(tf.IndexedSlices(worker, slot))
            self._values.scatter_add(tf.IndexedSlices(tf.constant([1, 0, 0, 0], tf.float64), slot))
            self._numbers.scatter_add(tf.IndexedSlices(np.int64(1), slot))
            steps = tf.cast(self._values.sparse_read(slot)[1], tf.int64)
            begun = tf.stack([self._numbers.sparse_read(slot), steps])
        return Attempt(*tf.unstack(begun))

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
            where, number = tf.unstack(tf.cast(message[:2], tf.int64))
            is_its = self._is_last(where, number)
            nothing = tf.zeros([4], tf.float64)
            change = tf.where(is_its, message[2:], nothing)
            self._values.scatter_add(tf.IndexedSlices(change, where))
            self._strayed.assign_add(tf.where(is_its, nothing, message[2:])[1])

    def holds(self, slot: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """In a closure: whether an attempt, given by its number, still holds the slot's lease."""
        asked = tf.stack([slot, attempt])
        with tf.device(self._device):
            return self._is_last(*tf.unstack(asked))

    def add_strayed(self, batches: tf.Tensor) -> tf.Operation:
        """Adds to `strayed`, on the ps: scalar float64."""
        with tf.device(self._device):
            return self._strayed.assign_add(batches, read_value=False)

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
            handle, where = self._values.handle, tf.cast(slot, tf.int64)
            return tf.raw_ops.ResourceScatterAdd(resource=handle, indices=where, updates=change)

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

    def _is_last(self, slot: tf.Tensor, attempt: tf.Tensor) -> tf.Tensor:
        """On the ps: whether no attempt at a lease in the slot began after this one."""
        return tf.equal(self._numbers.sparse_read(slot), attempt)
