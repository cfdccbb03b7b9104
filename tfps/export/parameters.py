"""The parameters of a model for its export, from a store or a checkpoint."""

import concurrent.futures
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import keras
import numpy as np
import tensorflow as tf

from tfps.checkpoint import reader
from tfps.checkpoint.checkpoint import Checkpoint, explain_failures
from tfps.checkpoint.keyed_rows import SavedKeyedRows
from tfps.checkpoint.restore import refuse_misfit
from tfps.checkpoint.saved_values import SavedGroup, read_variables
from tfps.export.keyed_slices import KeyedSlices
from tfps.export.sliced_variables import SlicedGroup, WrittenRun
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.rules import Rules
from tfps.store.current_rows import missed_since
from tfps.store.group_layout import GroupLayout
from tfps.store.initializers import unknown_rows
from tfps.store.keyed.group import KeyedGroup
from tfps.store.keyed.part import SavedKeys
from tfps.store.keyed_layout import KeyedLayout, hashes_of_array
from tfps.store.layout import StoreLayout
from tfps.store.parameter_store import ParameterStore
from tfps.store.partitioned_variable import rows_at_once
from tfps.store.run_state import LearningRates, rules_by_part
from tfps.store.table_group import TableGroup

GroupInSlices = SlicedGroup | KeyedSlices
_T = TypeVar("_T")
_DEVICE = "/device:CPU:0"


class WholeParameters(Protocol):
    """Parameters that fit in one process."""

    def read_dense(self) -> list[np.ndarray]: ...

    def read_state(self) -> list[np.ndarray]: ...

    def read_tables(self, tables: Sequence[int]) -> dict[int, np.ndarray]:
        """Whole tables in the order of their ids, `[rows, dim]` float32."""


class Parameters(WholeParameters, Protocol):
    """Parameters that one process may hold in part only. Nobody changes them meanwhile."""

    @property
    def model(self) -> StatelessModel: ...

    @property
    def layout(self) -> StoreLayout: ...

    def read_rows(self, wanted: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Rows `[n, dim]` float32 by table, for distinct ids `[n]` int64 by table."""

    def write_group(self, index: int, group: GroupInSlices, prefix: str) -> list[WrittenRun]:
        """Writes all rows of a group, a chunk at a time."""


class StoreParameters:
    """Those of a parameter store; all ps write their rows at the same time."""

    def __init__(self, model: StatelessModel, store: ParameterStore):
        self.model, self.layout = model, store.layout
        self.read_dense, self.read_state = store.read_dense, store.read_state
        self.read_tables = store.read_tables
        self._store = store

    def read_rows(self, wanted: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        return {table: self._store.read_rows(table, ids) for table, ids in wanted.items()}

    def write_group(self, index: int, group: GroupInSlices, prefix: str) -> list[WrittenRun]:
        """As that of `Parameters`; every ps must see the directory."""
        tables = self._store.groups[index]
        if isinstance(tables, KeyedGroup) and isinstance(group, KeyedSlices):
            return self._write_keys(tables, group, prefix)
        assert isinstance(tables, TableGroup)
        assert isinstance(group, SlicedGroup)

        def write(part: int) -> list[WrittenRun]:
            return self._write_part(tables, part, group, prefix)

        return [run for runs in self._on_each_ps(write) for run in runs]

    def _on_each_ps(self, work: Callable[[int], _T]) -> list[_T]:
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


class CheckpointParameters:
    """Those of a checkpoint, from any number of ps; slots are read, and left out."""

    def __init__(self, checkpoint: Checkpoint, model: StatelessModel, rules: Rules):
        self.model, self.layout = model, StoreLayout.of(model, rules, 1)
        signature = self.layout.signature(bool(model.loss_scaling))
        refuse_misfit(checkpoint, signature, model.numberings)
        self._checkpoint = checkpoint
        with self._explained():
            reader.check(checkpoint)
            self._variables = read_variables(checkpoint)
        self._paths = [v.path for v in model.dense], [v.path for v in model.state]
        self._saved = {saved.name: saved for saved in SavedGroup.all_in(checkpoint)}
        self._rates = None
        if checkpoint.learning_rates and not rules.dense.has_schedule:
            self._rates = LearningRates.of_checkpoint(checkpoint.learning_rates)

    def read_dense(self) -> list[np.ndarray]:
        return [self._variables[path] for path in self._paths[0]]

    def read_state(self) -> list[np.ndarray]:
        return [self._variables[path] for path in self._paths[1]]

    def read_tables(self, tables: Sequence[int]) -> dict[int, np.ndarray]:
        """As that of `Parameters`; a group is read once for all of its tables."""
        found: dict[int, np.ndarray] = {}
        for index, group in enumerate(self.layout.groups):
            places = {table: self.layout.group_of[table] for table in tables}
            members = {member: table for table, (k, member) in places.items() if k == index}
            if isinstance(group.layout, KeyedLayout):
                rows = {table: self.layout.tables[table].rows for table in members.values()}
                wanted = {table: np.arange(count, dtype=np.int64) for table, count in rows.items()}
                found |= self._read_keys(index, group.layout, wanted)
            elif members:
                found |= self._read_members(index, group.layout, members)
        return found

    def _read_members(
        self, index: int, layout: GroupLayout, members: Mapping[int, int]
    ) -> dict[int, np.ndarray]:
        """The tables of some members of a group, each by its number."""
        tables = self.layout.tables
        found = {k: np.empty([tables[k].rows, layout.dim], np.float32) for k in members.values()}
        for first, rows in self._runs(index):
            of_member, ids = layout.ids_of(np.arange(first, first + len(rows), dtype=np.int64))
            for member, table in members.items():
                mine = np.flatnonzero(of_member == member)
                found[table][ids[mine]] = rows[mine]
        return found

    def read_rows(self, wanted: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """As that of `Parameters`; a group is read once for all of its tables."""
        found: dict[int, np.ndarray] = {}
        for index, group in enumerate(self.layout.groups):
            if isinstance(group.layout, KeyedLayout):
                found |= self._read_keys(index, group.layout, wanted)
                continue
            asked = {
                table: (group.layout.rows_of(self.layout.group_of[table][1], ids), ids)
                for table, ids in wanted.items()
                if self.layout.group_of[table][0] == index
            }
            for table, (_, ids) in asked.items():
                found[table] = np.empty([len(ids), group.layout.dim], np.float32)
            of_tables = [numbers for numbers, _ in asked.values()]
            rows_asked = np.unique(np.concatenate([np.zeros([0], np.int64), *of_tables]))
            for first, rows in self._runs(index, rows_asked):
                for table, (numbers, _) in asked.items():
                    mine = np.flatnonzero((numbers >= first) & (numbers < first + len(rows)))
                    found[table][mine] = rows[numbers[mine] - first]
        return found

    def write_group(self, index: int, group: GroupInSlices, prefix: str) -> list[WrittenRun]:
        if isinstance(group, KeyedSlices):
            saved = self._saved_keys(index)
            runs = [
                group.write(prefix, first, hashes, rows, saved.total)
                for first, hashes, rows in self._runs_of_keys(index, saved)
            ]
            return [*runs, group.write_end(prefix, saved.total)]
        assert isinstance(group, SlicedGroup)
        return [group.write(prefix, first, tf.constant(rows)) for first, rows in self._runs(index)]

    def changed_rows(self, index: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows of a group that the checkpoint itself holds: numbers `[n]`, and rows `[n, dim]`.

        An increment has those that were touched since its base, and small groups whole.
        """
        saved = self._saved[self.layout.groups[index].layout.name]
        increment = self._checkpoint.increment
        if not increment or saved.name not in increment.tensors:
            for first, rows in self._runs(index):
                yield np.arange(first, first + len(rows)), rows
            return
        with self._explained():
            for numbers, lines, last in saved.read_touched(self._checkpoint):
                yield numbers, self._caught_up(index, lines, last).numpy()

    def changed_keys(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Hashes of all keys of a group; those whose rows it holds, and these rows `[n, dim]`.

        Hashes `[n]` int64 are ascending.
        """
        saved, group = self._saved_keys(index), self.layout.groups[index]
        hashes, rows = [np.zeros([0], np.int64)], [np.zeros([0, group.layout.dim], np.float32)]
        with self._explained():
            everything = saved.read_hashes()
            for run in saved.read_changed():
                hashes.append(run.hashes.numpy())
                rows.append(self._caught_up_keys(index, run).numpy())
        return everything, np.concatenate(hashes), np.concatenate(rows)

    def _runs(
        self, index: int, wanted: np.ndarray | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """First row and rows `[n, dim]` of each run after all updates; only runs with wanted rows.

        `wanted` has ascending numbers of rows; None is for all runs.
        """
        group = self.layout.groups[index]
        saved = self._saved[group.layout.name]
        for first, count in saved.runs():
            if wanted is not None and not _holds(wanted, first, count):
                continue
            with self._explained():
                lines, last = saved.read_run(self._checkpoint, first, count)
            yield first, self._caught_up(index, lines, last).numpy()

    def _caught_up(self, index: int, lines: Any, last: Any) -> tf.Tensor:
        """Rows of a group after all updates, `[n, dim]`, from `lines` `[n, size]` of `StoredRow`.

        `last` is the number of updates after each row's last one, `[n]`; None where it is not
        known.
        """
        group = self.layout.groups[index]
        rates = self._rates if group.rule == self.layout.dense_rule else None
        [rule] = rules_by_part(group.rule, rates, 1)
        steps = tf.constant(self._checkpoint.steps, tf.int64)
        missed = (
            MissedUpdates.of(tf.zeros([len(lines)]), steps)
            if last is None
            else missed_since(tf.convert_to_tensor(last), steps)
        )
        return group.caught_up(rule, tf.convert_to_tensor(lines), missed)[:, : group.layout.dim]

    def _saved_keys(self, index: int) -> SavedKeyedRows:
        group = self.layout.groups[index]
        assert isinstance(group.layout, KeyedLayout)
        with self._explained():
            return SavedKeyedRows(self._checkpoint, group.layout, group.row)

    def _runs_of_keys(
        self, index: int, saved: SavedKeyedRows
    ) -> Iterator[tuple[int, tf.Tensor, tf.Tensor]]:
        """Number of each run's first row, the hashes of its keys, and their rows `[n, dim]`."""
        for first, count in saved.runs(0, saved.total):
            with self._explained():
                run = saved.read(_DEVICE, first, count)
            yield first, run.hashes, self._caught_up_keys(index, run)

    def _caught_up_keys(self, index: int, run: SavedKeys) -> tf.Tensor:
        group = self.layout.groups[index]
        last = run.records[:, 1] if group.catches_up else None
        return self._caught_up(index, group.row.decode_flat(run.lines), last)

    def _read_keys(
        self, index: int, layout: KeyedLayout, wanted: Mapping[int, np.ndarray]
    ) -> dict[int, np.ndarray]:
        """Rows of some keys of a group's tables, as of `read_rows`."""
        members = {table: self.layout.group_of[table] for table in wanted}
        asked = {
            table: hashes_of_array(wanted[table].astype(np.int64), layout.salts[member])
            for table, (group, member) in members.items()
            if group == index
        }
        if not asked:
            return {}
        unknown = unknown_rows(layout.tables)
        found = {
            table: np.tile(unknown[members[table][1]], (len(hashes), 1))
            for table, hashes in asked.items()
        }
        for _, run, rows in self._runs_of_keys(index, self._saved_keys(index)):
            sorted_hashes = run.numpy()
            for table, hashes in asked.items():
                places = np.minimum(np.searchsorted(sorted_hashes, hashes), len(run) - 1)
                mine = np.flatnonzero(sorted_hashes[places] == hashes)
                found[table][mine] = tf.gather(rows, places[mine]).numpy()
        return found

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explain_failures(f"checkpoint {self._checkpoint.path} cannot be read")


def values_by_path(
    model: StatelessModel, parameters: WholeParameters, left_out: Collection[str] = ()
) -> dict[str, np.ndarray]:
    values = {}
    both = (model.dense, parameters.read_dense()), (model.state, parameters.read_state())
    for variables, read in both:
        values.update({v.path: x for v, x in zip(variables, read, strict=True)})
    wanted = {k: table.name for k, table in enumerate(model.tables) if table.name not in left_out}
    rows = parameters.read_tables(list(wanted))
    return values | {name: rows[k] for k, name in wanted.items()}


def assign_values(model: keras.Model, values: Mapping[str, np.ndarray]) -> None:
    """Sets a model's parameters; the states of its random generators stay."""
    for variable in model.variables:
        if variable.dtype == "float32":
            variable.assign(values[variable.path])


def rows_of_lookups(
    parameters: Parameters, asked: Sequence[tuple[int, np.ndarray]]
) -> list[np.ndarray]:
    """The rows that lookups ask for, `[*ids.shape, dim]` float32; each table is read once."""
    wanted: dict[int, np.ndarray] = {}
    for table, ids in asked:
        wanted[table] = np.union1d(wanted.get(table, np.zeros([0], np.int64)), ids.astype(np.int64))
    found = parameters.read_rows(wanted)
    return [found[table][np.searchsorted(wanted[table], ids)] for table, ids in asked]


def _holds(numbers: np.ndarray, first: int, count: int) -> bool:
    """Whether some of the ascending numbers lie in a run."""
    begin, end = np.searchsorted(numbers, [first, first + count])
    return bool(begin < end)
