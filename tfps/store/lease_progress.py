"""How far each lease in flight has come, kept on a ps beside the parameters."""

import dataclasses

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


class LeaseProgress:
    """A small table on the first ps with one slot per lease in flight.

    A worker advances its slot after each push, so that a lease whose worker was lost goes on with
    the first batch that was not recorded: at most one batch is trained twice, none is left out.
    """

    def __init__(self, slots: int, device: str):
        self._device = device
        with tf.device(device):
            self._values = tf.Variable(tf.zeros([slots, 4], tf.float64), trainable=False)
            self._workers = tf.Variable(tf.fill([slots], _NO_WORKER), trainable=False)

    def clear(self, slot: int) -> None:
        """Makes a slot ready for a new lease; called by the chief."""
        with tf.device(self._device):
            self._values.scatter_update(tf.IndexedSlices(tf.zeros([4], tf.float64), slot))
            self._workers.scatter_update(tf.IndexedSlices(_NO_WORKER, slot))

    def begin(self, slot: tf.Tensor, worker: tf.Tensor) -> tf.Tensor:
        """Records a worker's attempt; returns the steps already trained, scalar int64."""
        with tf.device(self._device):
            self._workers.scatter_update(tf.IndexedSlices(worker, slot))
            self._values.scatter_add(tf.IndexedSlices(tf.constant([1, 0, 0, 0], tf.float64), slot))
        return tf.cast(self.slot(slot)[1], tf.int64)

    def advance(self, slot: tf.Tensor, worker: tf.Tensor, change: tf.Tensor) -> None:
        """Adds `[0, steps, bad, loss_sum]`, float64, to a slot, once those steps are pushed.

        It does nothing for a worker whose lease another has begun since: one that was stopped for a
        while, and taken for dead, may go on with it until it notices.
        """
        # One tensor: each one that travels to a ps costs a message of its own.
        numbers = tf.cast(tf.stack([slot, worker]), tf.float64)
        message = tf.concat([numbers, change], 0)
        with tf.device(self._device):
            where = tf.cast(message[0], tf.int64)
            is_its = tf.equal(self._workers.sparse_read(where), tf.cast(message[1], tf.int64))
            change = tf.where(is_its, message[2:], tf.zeros([4], tf.float64))
            self._values.scatter_add(tf.IndexedSlices(change, where))

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
