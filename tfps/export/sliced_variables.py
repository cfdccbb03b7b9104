"""Variables of an exported model that have no rows yet, and runs of rows that belong into them."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tfps.experiment.task import Table
from tfps.export.names import SLICES
from tfps.store.save_now import save_now


@dataclasses.dataclass(frozen=True)
class WrittenRun:
    """Rows of a group that one process has written."""

    prefix: str
    first: int
    count: int


class SlicedVariables:
    """What a group of tables has in a SavedModel, which each process writes a run of.

    Attributes:
        variables: Of the SavedModel, without rows here; restored, they have all.
        resources: What else the SavedModel needs to find rows, without being written.
    """

    def __init__(
        self, name: str, tables: Sequence[Table], number: int, rows: Sequence[tf.TensorSpec]
    ):
        self._number = number
        self._row_specs = list(rows)
        self.tables = [table.name for table in tables]
        self.resources: list[tf.lookup.StaticHashTable] = []
        self.variables = [
            tf.Variable(
                tf.zeros([0, *row.shape], row.dtype),
                trainable=False,
                shape=tf.TensorShape([None, *row.shape]),
                name=name,
            )
            for row in self._row_specs
        ]

    @property
    def names(self) -> list[str]:
        """Names of the variables in the SavedModel's checkpoint, if `ServingModel` has them."""
        return [
            f"{SLICES}/{self._number}/{k}/.ATTRIBUTES/VARIABLE_VALUE"
            for k in range(len(self.variables))
        ]

    def _write_run(
        self, prefix: str, first: int, values: Sequence[tf.Tensor], total: int
    ) -> WrittenRun:
        """Writes a run of rows as a slice of each variable; to be called where the rows are.

        Args:
            values: Rows of each variable, `[count, *shape]`.
        """
        run = WrittenRun(f"{prefix}.slice-{self._number}-{first}", first, int(values[0].shape[0]))
        save_now(run.prefix, self.names, self._slices(run, total), values)
        return run

    def _read_run(self, prefix: str, run: WrittenRun, total: int) -> list[tf.Tensor]:
        """Reads a run of each variable."""
        return list(
            tf.raw_ops.RestoreV2(
                prefix=prefix,
                tensor_names=self.names,
                shape_and_slices=self._slices(run, total),
                dtypes=[row.dtype for row in self._row_specs],
            )
        )

    def _slices(self, run: WrittenRun, total: int) -> list[str]:
        """A run of each variable, as `tf.raw_ops.SaveV2` and `RestoreV2` want it."""
        found = []
        for row in self._row_specs:
            shape = " ".join(map(str, [total, *row.shape]))
            whole = ":-" * row.shape.rank  # of a row
            found.append(f"{shape} {run.first},{run.count}{whole}")
        return found
