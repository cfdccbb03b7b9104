"""A group of tables on the ps, with their slots."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.store.group_layout import GroupLayout
from tfps.store.initial_rows import initial_rows
from tfps.store.mutex import Mutex
from tfps.store.partition import Partition
from tfps.store.piece import Piece
from tfps.store.update_rule import UpdateRule


@dataclasses.dataclass(frozen=True)
class PulledRows:
    """The distinct rows that a batch asked for.

    Attributes:
        ids: Their ids in the group `[u]`.
        rows: Their values `[u, dim]`.
        inverse: For every id asked for, the index of its row in `rows`, `[n]` int32.
        owned: For every ps, its rows' numbers within its part, `[u_k]`.
        where: For every ps, the indices of its rows in `rows`, `[u_k]` int32.
    """

    ids: tf.Tensor
    rows: tf.Tensor
    inverse: tf.Tensor
    owned: list[tf.Tensor]
    where: list[tf.Tensor]


class TableGroup:
    """Tables of one dimension and optimizer: a gather, and a gather and scatter, per ps and step.

    A row's slots stand beside it in one wider row of one variable. What costs time is fetching
    rows from all over a large memory: so a row and its slots are fetched at once, in whole, which
    takes less than half the time of TensorFlow's sparse kernels on separate variables.

    A ps applies one push to a group at a time, under a mutex that it holds while it reads, changes
    and writes the rows: no update is lost or half-applied. A pull takes no lock; a row that is
    being written may reach it with some values old and some new.

    Attributes:
        layout: Where the rows lie.
        rule: How they are updated.
    """

    def __init__(
        self,
        layout: GroupLayout,
        devices: Sequence[str],
        rule: UpdateRule,
        decays: bool,
        seed: int,
    ):
        """Creates every part on its ps.

        Args:
            layout: Where the rows lie.
            devices: One per ps.
            rule: How they are updated.
            decays: Whether weight decay applies to them.
            seed: The run's seed.
        """
        self.layout = layout
        self.rule = rule
        self._devices = devices
        self._decays = decays
        self._rows = Partition(
            layout.name,
            (layout.total_rows, layout.dim * (1 + len(rule.slots))),
            layout.bounds,
            devices,
            lambda part: self._initial(part, seed),
            {},
        )
        self._mutexes = [Mutex(layout.name, device) for device in devices]

    def pull(self, ids: tf.Tensor) -> PulledRows:
        """Fetches the rows of ids in the group `[n]`, each distinct row once."""
        distinct, inverse = tf.unique(ids)
        rows, owner = self.layout.locate(distinct)
        if self.layout.parts == 1:
            return PulledRows(distinct, self._gather(0, rows), inverse, [rows], [])
        firsts = [self.layout.bounds(part)[0] for part in range(self.layout.parts)]
        owned = [
            run - first
            for run, first in zip(
                tf.dynamic_partition(rows, owner, self.layout.parts), firsts, strict=True
            )
        ]
        where = tf.dynamic_partition(tf.range(tf.size(rows)), owner, self.layout.parts)
        pulled = [self._gather(part, owned[part]) for part in range(self.layout.parts)]
        return PulledRows(distinct, tf.dynamic_stitch(where, pulled), inverse, owned, where)

    def sum_by_row(self, pulled: PulledRows, gradient: tf.Tensor) -> tf.Tensor:
        """The gradient of each distinct row `[u, dim]`, from that of every id asked for.

        Args:
            pulled: What `pull` returned.
            gradient: One row per id asked for, `[n, dim]`.
        """
        return tf.math.unsorted_segment_sum(gradient, pulled.inverse, tf.shape(pulled.rows)[0])

    def push(self, pulled: PulledRows, gradient: tf.Tensor, steps: Sequence[tf.Tensor]) -> None:
        """Applies the gradient of what was pulled.

        Args:
            pulled: What `pull` returned.
            gradient: One row per distinct row, `[u, dim]`.
            steps: For every ps, the number of updates before this one, scalar int64 on that ps.
        """
        for part, device in enumerate(self._devices):
            mine = tf.gather(gradient, pulled.where[part]) if pulled.where else gradient
            with tf.device(device):
                self._update(part, pulled.owned[part], mine, steps[part])

    def signature(self) -> dict[str, Any]:
        """What must be equal for a checkpoint of the group to fit."""
        return {"tables": [table.name for table in self.layout.tables], **self.rule.signature()}

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
        lock = self._mutexes[part].lock([gradient, rows])
        with tf.control_dependencies([lock]):
            held = self._read(part, rows)
        values, *slots = tf.split(held, 1 + len(self.rule.slots), axis=1)
        if self._decays:
            values -= self.rule.decay(step) * values
        changed = self.rule.sparse(values, slots, gradient, step)
        write = tf.raw_ops.ResourceScatterUpdate(
            resource=self._rows.parts[part].handle, indices=rows, updates=tf.concat(changed, 1)
        )
        self._mutexes[part].release(lock, [write])

    def _initial(self, part: int, seed: int) -> tf.Tensor:
        rows = initial_rows(self.layout, part, seed)
        starts = self.rule.slots.values()
        return tf.concat([rows, *(tf.fill(tf.shape(rows), np.float32(x)) for x in starts)], 1)
