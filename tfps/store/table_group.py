"""A group of tables on the ps, with their slots."""

import dataclasses
import uuid
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfps.store.group_layout import GroupLayout
from tfps.store.initial_rows import initial_rows
from tfps.store.partition import Partition
from tfps.store.piece import Piece
from tfps.store.update_rule import UpdateRule


@dataclasses.dataclass(frozen=True)
class PulledRows:
    """The distinct rows that a batch asked for.

    Attributes:
        rows: Their values `[u, dim]`.
        inverse: For every id asked for, the index of its row in `rows`, `[n]` int32.
        owned: For every ps, its rows' numbers within its part, `[u_k]`.
        where: For every ps, the indices of its rows in `rows`, `[u_k]` int32.
    """

    rows: tf.Tensor
    inverse: tf.Tensor
    owned: list[tf.Tensor]
    where: list[tf.Tensor]


class TableGroup:
    """Tables of one dimension: one gather, and one gather and scatter, per ps and step.

    A row's slots stand beside it in one wider row of one variable. What costs time is fetching
    rows from all over a large memory: so a row and its slots are fetched at once, in whole, which
    takes less than half the time of TensorFlow's sparse kernels on separate variables.

    A ps applies one push to a group at a time, under a mutex that it holds while it reads, changes
    and writes the rows: no update is lost or half-applied. A pull takes no lock; a row that is
    being written may reach it with some values old and some new.
    """

    def __init__(self, layout: GroupLayout, devices: Sequence[str], rule: UpdateRule, seed: int):
        self.layout = layout
        self._devices = devices
        self._rule = rule
        self._rows = Partition(
            layout.name,
            (layout.total_rows, layout.dim * (1 + len(rule.slots))),
            layout.bounds,
            devices,
            lambda part: self._initial(part, seed),
        )
        self._mutexes = []
        for device in devices:
            with tf.device(device):
                name = f"{layout.name}-{uuid.uuid4()}"
                self._mutexes.append(tf.raw_ops.MutexV2(shared_name=name))

    def pull(self, ids: tf.Tensor) -> PulledRows:
        """Fetches the rows of ids in the group `[n]`, each distinct row once."""
        distinct, inverse = tf.unique(ids)
        rows, owner = self.layout.locate(distinct)
        if self.layout.parts == 1:
            return PulledRows(self._gather(0, rows), inverse, [rows], [])
        firsts = [self.layout.bounds(part)[0] for part in range(self.layout.parts)]
        owned = [
            run - first
            for run, first in zip(
                tf.dynamic_partition(rows, owner, self.layout.parts), firsts, strict=True
            )
        ]
        where = tf.dynamic_partition(tf.range(tf.size(rows)), owner, self.layout.parts)
        pulled = [self._gather(part, owned[part]) for part in range(self.layout.parts)]
        return PulledRows(tf.dynamic_stitch(where, pulled), inverse, owned, where)

    def push(self, pulled: PulledRows, gradient: tf.Tensor, steps: Sequence[tf.Tensor]) -> None:
        """Applies the gradient of what was pulled.

        Args:
            pulled: What `pull` returned.
            gradient: One row per id asked for, `[n, dim]`; rows of the same id are summed here.
            steps: For every ps, the number of updates before this one, scalar int64 on that ps.
        """
        summed = tf.math.unsorted_segment_sum(gradient, pulled.inverse, tf.shape(pulled.rows)[0])
        for part, device in enumerate(self._devices):
            mine = tf.gather(summed, pulled.where[part]) if pulled.where else summed
            with tf.device(device):
                self._update(part, pulled.owned[part], mine, steps[part])

    def read_table(self, table: int) -> np.ndarray:
        """A whole table in the order of its ids, `[rows, dim]` float32, on the chief."""
        values = np.concatenate([part.numpy() for part in self._rows.parts])
        return values[self.layout.rows_of(table), : self.layout.dim]

    def pieces(self) -> list[Piece]:
        """What a checkpoint holds of the group."""
        return self._rows.pieces()

    def _gather(self, part: int, rows: tf.Tensor) -> tf.Tensor:
        """Rows `[u, dim]` of a part; the slots beside them stay on the ps."""
        with tf.device(self._devices[part]):
            return self._read(part, rows)[:, : self.layout.dim]

    def _read(self, part: int, rows: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ResourceGather(
            resource=self._rows.parts[part].handle, indices=rows, dtype=tf.float32
        )

    def _update(self, part: int, rows: tf.Tensor, gradient: tf.Tensor, step: tf.Tensor) -> None:
        """Applies a gradient to rows of a part; called under the device of its ps."""
        gradient, rows = tf.identity(gradient), tf.identity(rows)
        with tf.control_dependencies([gradient, rows]):  # nobody waits while these travel
            lock = tf.raw_ops.MutexLock(mutex=self._mutexes[part])
        with tf.control_dependencies([lock]):
            held = self._read(part, rows)
        values, *slots = tf.split(held, 1 + len(self._rule.slots), axis=1)
        changed = self._rule.sparse(values, slots, gradient, step)
        write = tf.raw_ops.ResourceScatterUpdate(
            resource=self._rows.parts[part].handle, indices=rows, updates=tf.concat(changed, 1)
        )
        with tf.control_dependencies([write]):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)

    def _initial(self, part: int, seed: int) -> tf.Tensor:
        rows = initial_rows(self.layout, part, seed)
        slot = tf.fill(tf.shape(rows), tf.constant(self._rule.slot_start, tf.float32))
        return tf.concat([rows, *[slot] * len(self._rule.slots)], 1)
