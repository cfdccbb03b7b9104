"""The parameters of a checkpoint, read some rows after others, whatever memory they would take."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.checkpoint import reader
from tfps.checkpoint.checkpoint import Checkpoint, explain_failures
from tfps.checkpoint.keyed_rows import SavedKeyedRows
from tfps.checkpoint.restore import refuse_misfit
from tfps.checkpoint.saved_values import SavedGroup, read_variables
from tfps.export.keyed_slices import KeyedSlices
from tfps.export.parameters import GroupInSlices
from tfps.export.sliced_variables import SlicedGroup, WrittenRun
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.rules import Rules
from tfps.store.current_rows import missed_since
from tfps.store.initializers import unknown_rows
from tfps.store.keyed_layout import KeyedLayout, hashes_of_array
from tfps.store.layout import StoreLayout
from tfps.store.run_state import LearningRates, rules_by_part

_DEVICE = "/device:CPU:0"


class CheckpointParameters:
    """Those of a checkpoint, from any number of ps; slots are read, and left behind."""

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
            self._rates = LearningRates([_DEVICE], 0.0)
            self._rates.restore(checkpoint.learning_rates)
        self._dense_rule = rules.dense

    def read_dense(self) -> list[np.ndarray]:
        """As that of `Parameters`."""
        return [self._variables[path] for path in self._paths[0]]

    def read_state(self) -> list[np.ndarray]:
        """As that of `Parameters`."""
        return [self._variables[path] for path in self._paths[1]]

    def read_table(self, table: int) -> np.ndarray:
        """As that of `Parameters`."""
        rows = self.layout.tables[table].rows
        return self.read_rows({table: np.arange(rows, dtype=np.int64)})[table]

    def read_rows(self, wanted: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
        """As that of `Parameters`; a group is read once for all tables in it."""
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
        """As that of `Parameters`."""
        if isinstance(group, KeyedSlices):
            saved = self._saved_keys(index)
            runs = [
                group.write(prefix, first, hashes, rows, saved.total)
                for first, hashes, rows in self._runs_of_keys(index, saved)
            ]
            return [*runs, group.write_end(prefix, saved.total)]
        assert isinstance(group, SlicedGroup)
        return [group.write(prefix, first, tf.constant(rows)) for first, rows in self._runs(index)]

    def _runs(
        self, index: int, wanted: np.ndarray | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """The rows of a group as they are after all updates, a run after the other.

        Args:
            wanted: Numbers of rows in their order; runs without any of them are not read. None for
                all runs.

        Yields:
            Number of the run's first row, and its rows `[n, dim]`.
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
        """Rows of a group as they are after all updates, `[n, dim]`.

        Args:
            lines: Rows with their slots as their last updates left them, `[n, size]` of
                `StoredRow`.
            last: How many updates there had been after each row's last one, `[n]`; None where that
                is not known.
        """
        group = self.layout.groups[index]
        rates = self._rates if group.rule == self._dense_rule else None
        [rule] = rules_by_part(group.rule, rates, 1)
        steps = tf.constant(self._checkpoint.steps, tf.int64)
        missed = (
            MissedUpdates.of(tf.zeros([len(lines)]), steps)
            if last is None
            else missed_since(tf.convert_to_tensor(last), steps)
        )
        return group.caught_up(rule, tf.convert_to_tensor(lines), missed)[:, : group.layout.dim]

    def _saved_keys(self, index: int) -> SavedKeyedRows:
        """The rows of a group without vocabularies."""
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
            group = self.layout.groups[index]
            last = run.records[:, 1] if group.catches_up else None
            lines = group.row.decode_flat(run.lines)
            yield first, run.hashes, self._caught_up(index, lines, last)

    def _read_keys(
        self, index: int, layout: KeyedLayout, wanted: Mapping[int, np.ndarray]
    ) -> dict[int, np.ndarray]:
        """Rows of some keys of a group's tables, as `read_rows` gives them."""
        members = {table: self.layout.group_of[table] for table in wanted}
        asked = {
            table: hashes_of_array(wanted[table].astype(np.int64), layout.salts[member])
            for table, (group, member) in members.items()
            if group == index
        }
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


def _holds(numbers: np.ndarray, first: int, count: int) -> bool:
    """Whether some of the numbers, which are in their order, lie in a run."""
    begin, end = np.searchsorted(numbers, [first, first + count])
    return bool(begin < end)
