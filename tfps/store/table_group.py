"""A group of tables on the ps, with their slots."""

import dataclasses
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
    """Tables of one dimension: one gather and one sparse update per ps and step."""

    def __init__(self, layout: GroupLayout, devices: Sequence[str], rule: UpdateRule, seed: int):
        self.layout = layout
        self._devices = devices
        self._rule = rule
        self._rows = Partition(
            layout.name,
            (layout.total_rows, layout.dim),
            layout.bounds,
            devices,
            rule,
            lambda part: initial_rows(layout, part, seed),
        )

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
                self._rule.sparse(self._rows.update(part, mine, steps[part]), pulled.owned[part])

    def read_table(self, table: int) -> np.ndarray:
        """A whole table in the order of its ids, `[rows, dim]` float32, on the chief."""
        values = np.concatenate([part.numpy() for part in self._rows.parts])
        return values[self.layout.rows_of(table)]

    def pieces(self) -> list[Piece]:
        """What a checkpoint holds of the group."""
        return self._rows.pieces()

    def _gather(self, part: int, rows: tf.Tensor) -> tf.Tensor:
        with tf.device(self._devices[part]):
            return tf.raw_ops.ResourceGather(
                resource=self._rows.parts[part].handle, indices=rows, dtype=tf.float32
            )
