"""The parameters of a checkpoint, read some rows after others, whatever memory they would take."""

import contextlib
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from tfps.checkpoint import reader
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.failures import explain_failures
from tfps.checkpoint.restore import refuse_misfit
from tfps.checkpoint.saved_values import SavedGroup, read_variables
from tfps.export.sliced_group import SlicedGroup, WrittenRun
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.rules import Rules
from tfps.store.last_updates import missed_since
from tfps.store.layout import StoreLayout
from tfps.store.learning_rates import LearningRates, rules_by_part

_DEVICE = "/device:CPU:0"


class CheckpointParameters:
    """Those of a checkpoint, from any number of ps; slots are read, and left behind.

    Attributes:
        model: The model that they are of.
        layout: Where they would lie on one ps.
    """

    def __init__(self, checkpoint: Checkpoint, model: StatelessModel, rules: Rules):
        """Holds the checkpoint against the model, and its files against its marker.

        Args:
            checkpoint: The checkpoint.
            model: The model that it is of.
            rules: How its parameters were updated.

        Raises:
            DamagedCheckpointError: If a file of it, or of its base, is damaged.
            UserError: If it was made by another model or other optimizers.
            RunError: If the storage does not answer.
        """
        self.model, self.layout = model, StoreLayout.of(model, rules, 1)
        refuse_misfit(checkpoint, self.layout.signature(bool(model.loss_scaling)))
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
        found = {}
        for index, group in enumerate(self.layout.groups):
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

    def write_group(self, index: int, group: SlicedGroup, prefix: str) -> list[WrittenRun]:
        """As that of `Parameters`."""
        return [group.write(prefix, first, tf.constant(rows)) for first, rows in self._runs(index)]

    def _runs(
        self, index: int, wanted: np.ndarray | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """The rows of a group as they are after all updates, a run after the other.

        Args:
            index: Of the group.
            wanted: Numbers of rows in their order; runs without any of them are not read. None for
                all runs.

        Yields:
            Number of the run's first row, and its rows `[n, dim]`.
        """
        group = self.layout.groups[index]
        saved = self._saved[group.layout.name]
        rates = self._rates if group.rule == self._dense_rule else None
        [rule] = rules_by_part(group.rule, rates, 1)
        steps = tf.constant(self._checkpoint.steps, tf.int64)
        for first, count in saved.runs():
            if wanted is not None and not _holds(wanted, first, count):
                continue
            with self._explained():
                lines, last = saved.read_run(self._checkpoint, first, count)
            missed = (
                MissedUpdates.of(tf.zeros([count]), steps)
                if last is None
                else missed_since(tf.constant(last), steps)
            )
            yield first, group.caught_up(rule, tf.constant(lines), missed)[:, 0].numpy()

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return explain_failures(f"checkpoint {self._checkpoint.path} cannot be read")


def _holds(numbers: np.ndarray, first: int, count: int) -> bool:
    """Whether some of the numbers, which are in their order, lie in a run."""
    begin, end = np.searchsorted(numbers, [first, first + count])
    return bool(begin < end)
