"""What an export is made of: the parameters of a model, wherever they are."""

import concurrent.futures
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

import keras
import numpy as np
import tensorflow as tf

from tfps.export.keyed_slices import KeyedSlices
from tfps.export.sliced_variables import SlicedGroup, WrittenRun
from tfps.model.stateless_model import StatelessModel
from tfps.store.keyed.group import KeyedGroup
from tfps.store.layout import StoreLayout
from tfps.store.parameter_store import ParameterStore
from tfps.store.partitioned_variable import rows_at_once
from tfps.store.table_group import TableGroup

GroupInSlices = SlicedGroup | KeyedSlices
_T = TypeVar("_T")


class WholeParameters(Protocol):
    """Parameters of which one process can hold all."""

    def read_dense(self) -> list[np.ndarray]:
        """Values of the model's dense variables."""

    def read_state(self) -> list[np.ndarray]:
        """Values of the model's state variables."""

    def read_table(self, table: int) -> np.ndarray:
        """A whole table in the order of its ids, `[rows, dim]` float32."""


class Parameters(WholeParameters, Protocol):
    """Parameters of which one process can hold a part. Nobody changes them meanwhile."""

    @property
    def model(self) -> StatelessModel:
        """The model that they are of."""

    @property
    def layout(self) -> StoreLayout:
        """Where they lie."""

    def read_rows(self, wanted: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Some rows of some tables.

        Args:
            wanted: Ids `[n]` int64 by index of the table, each once.

        Returns:
            By the same index, `[n, dim]` float32.
        """

    def write_group(self, index: int, group: GroupInSlices, prefix: str) -> list[WrittenRun]:
        """Writes all rows of a group, of which nobody holds more than a chunk."""


class StoreParameters:
    """Those of a parameter store. Each ps writes the rows that it holds, at the same time."""

    def __init__(self, model: StatelessModel, store: ParameterStore):
        self.model, self.layout = model, store.layout
        self.read_dense, self.read_state = store.read_dense, store.read_state
        self.read_table = store.read_table
        self._store = store

    def read_rows(self, wanted: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """As that of `Parameters`."""
        return {table: self._store.read_rows(table, ids) for table, ids in wanted.items()}

    def write_group(self, index: int, group: GroupInSlices, prefix: str) -> list[WrittenRun]:
        """As that of `Parameters`; every ps must see where the files go."""
        tables = self._store.groups[index]
        if isinstance(tables, KeyedGroup) and isinstance(group, KeyedSlices):
            return self._write_keys(tables, group, prefix)
        assert isinstance(tables, TableGroup)
        assert isinstance(group, SlicedGroup)

        def write(part: int) -> list[WrittenRun]:
            return self._write_part(tables, part, group, prefix)

        return [run for runs in self._on_each_ps(write) for run in runs]

    def _on_each_ps(self, work: Callable[[int], _T]) -> list[_T]:
        """What each ps gave, all at the same time."""
        parts = range(len(self._store.devices))
        with concurrent.futures.ThreadPoolExecutor(len(parts), "export") as pool:
            return list(pool.map(work, parts))

    def _write_keys(self, tables: KeyedGroup, group: KeyedSlices, prefix: str) -> list[WrittenRun]:
        in_order = self._on_each_ps(tables.in_order)
        sizes = [int(hashes.shape[0]) for hashes, _ in in_order]
        total = sum(sizes)

        def write(part: int) -> list[WrittenRun]:
            before, size, (hashes, rows) = sum(sizes[:part]), sizes[part], in_order[part]
            stride = rows_at_once(4 * tables.layout.dim, size)
            written = []
            with tf.device(self._store.devices[part]):
                for first in range(0, size, stride):
                    mine = slice(first, first + stride)
                    values = tables.read_numbers(part, rows[mine])
                    written.append(group.write(prefix, before + first, hashes[mine], values, total))
            return written

        runs = [run for some in self._on_each_ps(write) for run in some]
        return [*runs, group.write_end(prefix, total)]

    def _write_part(
        self, tables: TableGroup, part: int, group: SlicedGroup, prefix: str
    ) -> list[WrittenRun]:
        first, end = tables.layout.bounds(part)
        stride = tables.rows_at_once(end - first)  # each run is a file of the exported model
        with tf.device(self._store.devices[part]):
            return [
                group.write(prefix, at, tables.read_run(part, at - first, min(stride, end - at)))
                for at in range(first, end, stride)
            ]


def values_by_path(
    model: StatelessModel, parameters: WholeParameters, left_out: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """Every parameter by the path of its variable."""
    values = {}
    both = (model.dense, parameters.read_dense()), (model.state, parameters.read_state())
    for variables, read in both:
        values.update({v.path: x for v, x in zip(variables, read, strict=True)})
    for index, table in enumerate(model.tables):
        if table.name not in left_out:
            values[table.name] = parameters.read_table(index)
    return values


def assign_values(model: keras.Model, values: Mapping[str, np.ndarray]) -> None:
    """Gives a model its parameters; the states of its random generators stay what they are."""
    for variable in model.variables:
        if variable.dtype == "float32":
            variable.assign(values[variable.path])


def rows_of_lookups(
    parameters: Parameters, asked: Sequence[tuple[int, np.ndarray]]
) -> list[np.ndarray]:
    """The rows that lookups ask for, each table's read once.

    Returns:
        `[*ids.shape, dim]` float32 for each lookup.
    """
    wanted: dict[int, np.ndarray] = {}
    for table, ids in asked:
        wanted[table] = np.union1d(wanted.get(table, np.zeros([0], np.int64)), ids.astype(np.int64))
    found = parameters.read_rows(wanted)
    return [found[table][np.searchsorted(wanted[table], ids)] for table, ids in asked]
