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
    """Tables of one dimension: one gather, and one read, change and write, per ps and step.

    A row's slots stand right behind it in the same variable, which has `1 + slots` lines of length
    dim for each row. What costs time is fetching rows from all over a large memory: so what an
    update needs of a row lies together, which takes less than half the time of TensorFlow's sparse
    kernels on separate variables, and a pull fetches the row's own line only.

    A ps applies one push to a group at a time, under a mutex that it holds while it reads, changes
    and writes the rows: no update is lost or half-applied. A pull takes no lock; a row that is
    being written may reach it with some values old and some new.
    """

    def __init__(self, layout: GroupLayout, devices: Sequence[str], rule: UpdateRule, seed: int):
        self.layout = layout
        self._devices = devices
        self._rule = rule
        self._lines = 1 + len(rule.slots)  # of the variable, for each row
        self._rows = Partition(
            layout.name,
            (layout.total_rows * self._lines, layout.dim),
            lambda part: tuple(row * self._lines for row in layout.bounds(part)),
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
        summed = _sum_by_row(gradient, pulled.inverse, tf.shape(pulled.rows)[0])
        for part, device in enumerate(self._devices):
            mine = tf.gather(summed, pulled.where[part]) if pulled.where else summed
            with tf.device(device):
                self._update(part, pulled.owned[part], mine, steps[part])

    def read_table(self, table: int) -> np.ndarray:
        """A whole table in the order of its ids, `[rows, dim]` float32, on the chief."""
        values = np.concatenate([part.numpy() for part in self._rows.parts])
        return values[self.layout.rows_of(table) * self._lines]

    def pieces(self) -> list[Piece]:
        """What a checkpoint holds of the group."""
        return self._rows.pieces()

    def _gather(self, part: int, rows: tf.Tensor) -> tf.Tensor:
        """Rows `[u, dim]` of a part, without their slots."""
        with tf.device(self._devices[part]):
            return self._read(part, self._line(rows))

    def _line(self, rows: tf.Tensor) -> tf.Tensor:
        """Where rows begin in the variable; called under the device of their ps."""
        if self._lines == 1:
            return rows
        if self.layout.total_rows * self._lines >= 2**31:
            rows = tf.cast(rows, tf.int64)
        return rows * self._lines

    def _read(self, part: int, lines: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ResourceGather(
            resource=self._rows.parts[part].handle, indices=lines, dtype=tf.float32
        )

    def _update(self, part: int, rows: tf.Tensor, gradient: tf.Tensor, step: tf.Tensor) -> None:
        """Applies a gradient to rows of a part; called under the device of its ps."""
        gradient, line = tf.identity(gradient), self._line(tf.identity(rows))
        with tf.control_dependencies([gradient, line]):  # nobody waits while these travel
            lock = tf.raw_ops.MutexLock(mutex=self._mutexes[part])
        with tf.control_dependencies([lock]):
            lines = [line, *(line + k for k in range(1, self._lines))]
            held, *slots = [self._read(part, each) for each in lines]
        changed = self._rule.sparse(held, slots, gradient, step)
        writes = [
            tf.raw_ops.ResourceScatterUpdate(
                resource=self._rows.parts[part].handle, indices=each, updates=values
            )
            for each, values in zip(lines, changed, strict=True)
        ]
        with tf.control_dependencies(writes):
            tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)

    def _initial(self, part: int, seed: int) -> tf.Tensor:
        rows = initial_rows(self.layout, part, seed)
        slot = tf.fill(tf.shape(rows), tf.constant(self._rule.slot_start, tf.float32))
        return tf.reshape(
            tf.stack([rows, *[slot] * len(self._rule.slots)], 1), [-1, self.layout.dim]
        )


def _sum_by_row(gradient: tf.Tensor, inverse: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Sums the gradients `[n, dim]` of equal rows: `[rows, dim]`.

    As a sparse matrix of ones times the gradients, which takes 0.6 of the time of
    `tf.math.unsorted_segment_sum` for dim 16 and less, and the same for larger ones.
    """
    count = tf.size(inverse)
    return tf.raw_ops.SparseTensorDenseMatMul(
        a_indices=tf.stack([inverse, tf.range(count)], 1),
        a_values=tf.ones([count]),
        a_shape=tf.cast(tf.stack([rows, count]), tf.int64),
        b=gradient,
    )
