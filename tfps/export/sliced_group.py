"""A group of tables in an exported model, in the order in which its rows lie on the ps."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfps.export.row_encoding import RowEncoding
from tfps.layers.id_check import refuse_outside
from tfps.store.group_layout import GroupLayout
from tfps.store.lookups import rows_for
from tfps.store.save_now import save_now

# Given logical rows `[n]` int64, what is kept of them, `[n, width]` for each tensor of the group.
Gather = Callable[[tf.Tensor], Sequence[tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class WrittenRun:
    """Rows of a group that one process has written.

    Attributes:
        prefix: Of the files.
        first: First row, in the group's logical order.
        count: Number of rows.
    """

    prefix: str
    first: int
    count: int


def variable_names(number: int, variables: int) -> list[str]:
    """Names of a group's variables in the SavedModel's checkpoint, as `ServingModel` has them.

    Args:
        number: Position among the groups of the exported model.
        variables: How many it has.
    """
    return [f"slices/{number}/{k}/.ATTRIBUTES/VARIABLE_VALUE" for k in range(variables)]


class SlicedGroup:
    """Where the rows of a group's tables are in an exported model, which holds none of them yet.

    A SavedModel looks a row up where the training's ps had it: so each ps writes what it holds as
    it lies there, and nobody has to sort rows that no process can hold.

    Attributes:
        variables: Of the SavedModel, `[0, width]` here; restored, they have a row for each of the
            group.
    """

    def __init__(self, layout: GroupLayout, encoding: RowEncoding, number: int):
        """Makes variables without rows.

        Args:
            layout: The group's; on how many ps it lies does not matter.
            encoding: How rows are kept.
            number: Position among the groups of the exported model.
        """
        self._layout = layout
        self._encoding = encoding
        self._number = number
        self._tensors = encoding.tensors(layout.dim)
        self.variables = [
            tf.Variable(
                tf.zeros([0, kept.width], kept.dtype),
                trainable=False,
                shape=tf.TensorShape([None, kept.width]),
                name=layout.name,
            )
            for kept in self._tensors
        ]

    @property
    def names(self) -> list[str]:
        """Names of the variables in the SavedModel's checkpoint, if `ServingModel` has them."""
        return variable_names(self._number, len(self.variables))

    @property
    def tables(self) -> list[str]:
        """Names of its tables."""
        return [table.name for table in self._layout.tables]

    def look_up(self, table: str, ids: tf.Tensor, gather: Gather | None = None) -> tf.Tensor:
        """The rows of ids, `[*ids.shape, dim]` float32.

        Args:
            table: Name of the table.
            ids: Of any shape, int32 or int64.
            gather: Where rows are taken from; None for the variables.

        Raises:
            tf.errors.InvalidArgumentError: Names the first id that lies outside the table.
        """
        member, layout = self.tables.index(table), self._layout
        flat = tf.reshape(tf.cast(ids, tf.int64), [-1])
        limits = tf.fill(tf.shape(flat), tf.constant(layout.tables[member].rows, tf.int64))
        fine = refuse_outside(flat, limits, lambda _: tf.constant(table))
        rows = layout.logical_rows(flat + layout.offsets[member] + fine)
        kept = gather(rows) if gather else [tf.gather(each, rows) for each in self.variables]
        return rows_for(ids, self._encoding.decode(kept), layout.dim)

    def write(self, prefix: str, first: int, rows: tf.Tensor) -> WrittenRun:
        """Writes a run of rows as a slice of the variables; to be called where the rows are.

        Args:
            prefix: Of the SavedModel's variables.
            first: First row, in the group's logical order.
            rows: `[count, dim]` float32.

        Raises:
            tf.errors.OpError: If it cannot be written.
        """
        run = WrittenRun(f"{prefix}.slice-{self._number}-{first}", first, int(rows.shape[0]))
        save_now(run.prefix, self.names, self._specs(run), self._encoding.encode(rows))
        return run

    def read(
        self, prefix: str, runs: Sequence[WrittenRun], lookups: Sequence[tuple[str, np.ndarray]]
    ) -> Gather:
        """Reads the rows of some lookups out of what was written, each run once at most.

        Args:
            prefix: Of the SavedModel's variables, of which all runs are parts.
            runs: All runs of the group.
            lookups: Names of tables of the group, with ids of any shape that are asked of them.

        Returns:
            A `gather` that has these rows and no others.

        Raises:
            tf.errors.OpError: If they cannot be read, or are not what was written.
        """
        members = {name: member for member, name in enumerate(self.tables)}
        asked = [self._layout.rows_of(members[name], ids.ravel()) for name, ids in lookups]
        wanted = np.unique(np.concatenate([np.zeros([0], np.int64), *asked]))
        pieces: list[list[tf.Tensor]] = [[] for _ in self._tensors]
        for run in sorted(runs, key=lambda run: run.first):
            first, end = np.searchsorted(wanted, [run.first, run.first + run.count])
            if first == end:
                continue
            written = tf.raw_ops.RestoreV2(
                prefix=prefix,
                tensor_names=self.names,
                shape_and_slices=self._specs(run),
                dtypes=[kept.dtype for kept in self._tensors],
            )
            for piece, values in zip(pieces, written, strict=True):
                piece.append(tf.gather(values, wanted[first:end] - run.first))
        kept = [
            tf.concat([*piece, tf.zeros([0, tensor.width], tensor.dtype)], 0)
            for piece, tensor in zip(pieces, self._tensors, strict=True)
        ]

        def gather(rows: tf.Tensor) -> list[tf.Tensor]:
            places = tf.searchsorted(tf.constant(wanted), rows)
            return [tf.gather(values, places) for values in kept]

        return gather

    def _specs(self, run: WrittenRun) -> list[str]:
        """A run of each variable, as `tf.raw_ops.SaveV2` and `RestoreV2` want it."""
        total = self._layout.total_rows
        return [f"{total} {kept.width} {run.first},{run.count}:-" for kept in self._tensors]
