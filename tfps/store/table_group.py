"""A group of tables on the ps, with their slots."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from tfps.store.group_layout import AskedIds, GroupLayout
from tfps.store.initializers import draw_rows, write_given_rows
from tfps.store.layout import Group
from tfps.store.messages import EXACT, PulledRows, ReadRows, Wire
from tfps.store.partitioned_variable import TensorSlice, TouchedRows, rows_at_once
from tfps.store.row_group import RowGroup
from tfps.store.run_state import LearningRates


class TableGroup(RowGroup):
    """Tables with a row for each id."""

    layout: GroupLayout

    def __init__(
        self,
        group: Group,
        devices: Sequence[str],
        seed: int,
        steps: Callable[[int], tf.Tensor],
        wire: Wire = EXACT,
        rates: LearningRates | None = None,
    ):
        """Creates every part on its ps, with the rows' initial values.

        Args:
            steps: Given the index of a ps, the number of updates of it so far, scalar int64.
            rates: The learning rates, None where they are the rule's own.
        """
        super().__init__(group, devices, steps, wire, rates)
        assert isinstance(group.layout, GroupLayout)
        self.layout = layout = group.layout
        self._touched: list[TouchedRows | None] = [None] * len(devices)
        if layout.tracks_touched(group.row.bytes):
            self._touched = [
                TouchedRows(layout, part, device) for part, device in enumerate(devices)
            ]
        for part, device in enumerate(devices):
            with tf.device(device):
                draw_rows(layout, part, seed, functools.partial(self._rows.begin, part))
        write_given_rows(layout, devices, seed, self._rows.begin)

    def find(self, asked: AskedIds) -> PulledRows:
        """As that of `RowGroup`: where the rows lie is known on the worker."""
        nothing = tf.zeros([0, self.layout.dim])
        asked, inverse = asked.distinct()
        distinct = asked.ids
        rows, owner = self.layout.locate(distinct)
        if self.layout.parts == 1:
            return PulledRows(distinct, nothing, inverse, [rows], [])
        firsts = [self.layout.bounds(part)[0] for part in range(self.layout.parts)]
        numbers = rows - tf.gather(tf.constant(firsts, rows.dtype), owner)
        owned = tf.dynamic_partition(numbers, owner, self.layout.parts)
        where = tf.dynamic_partition(tf.range(tf.size(rows)), owner, self.layout.parts)
        return PulledRows(distinct, nothing, inverse, owned, where)

    def read_part(
        self, part: int, owned: tf.Tensor, with_slots: bool = False, is_training: bool = True
    ) -> ReadRows:
        """As that of `RowGroup`."""
        return ReadRows(owned, self._wire.send(self._rows.pull(part, owned, with_slots)))

    def begin_rows(self, table: int, ids: np.ndarray, rows: np.ndarray) -> None:
        """Gives rows of a table values to begin with, and what their slots start from.

        Args:
            ids: Of its rows, `[n]` int64.
            rows: Their values, `[n, dim]` float32.
        """
        for part, mine, numbers in self._by_part(table, ids):
            with tf.device(self._devices[part]):
                self._rows.begin(part, tf.constant(numbers), tf.constant(rows[mine]))

    def set_rows(
        self, table: int, ids: np.ndarray, lines: np.ndarray, last_updates: np.ndarray | None
    ) -> None:
        """Overwrites rows of a table with all their slots.

        Args:
            ids: Of its rows, `[n]` int64.
            lines: The rows, each with its slots behind it, `[n, size]` of `StoredRow`, float32.
            last_updates: How many updates there had been after each row's last one, `[n]` int32;
                None where rows do not make up for updates.
        """
        updates = np.zeros(len(ids), np.int32) if last_updates is None else last_updates
        for part, mine, numbers in self._by_part(table, ids):
            with tf.device(self._devices[part]):
                stored = tf.stack(self.row.encode(self.row.split(tf.constant(lines[mine]))), 1)
                self._rows.set(part, tf.constant(numbers), stored, tf.constant(updates[mine]))

    def set_last_updates(self, updates: tf.Tensor) -> None:
        """Lets no row have missed any of so many updates, scalar int64."""
        for slice_ in self._rows.slices()[1]:
            with tf.device(slice_.device):
                slice_.variable.assign(tf.fill([slice_.count], tf.cast(updates, tf.int32)))

    def read_table(self, table: int) -> np.ndarray:
        """A whole table in the order of its ids, `[rows, dim]` float32, on the chief."""
        layout = self.layout
        values = np.empty([layout.tables[table].rows, layout.dim], np.float32)
        largest = self.rows_at_once()
        for part, device in enumerate(self._devices):
            with tf.device(device):
                for ids, rows in layout.runs_of(table, part, largest):
                    if len(ids):
                        numbers = tf.constant(rows, layout.id_dtype)
                        values[ids] = self._rows.pull(part, numbers).numpy()
        return values

    def read_run(self, part: int, first: int, count: int) -> tf.Tensor:
        """Rows of a part side by side, as they are now, `[count, dim]` float32.

        To be called under the device of the part's ps, where they stay.
        """
        numbers = tf.range(first, first + count, dtype=self.layout.id_dtype)
        return self._rows.pull(part, numbers)

    def rows_at_once(self, rows: int = 0) -> int:
        """How many rows a ps reads at once when it reads many.

        Args:
            rows: How many it reads in all, if that is to be done in few turns.
        """
        return rows_at_once(self._rows.bytes_to_pull, rows)

    def read_rows(self, table: int, ids: np.ndarray) -> np.ndarray:
        """Some rows of a table, `[n, dim]` float32, on the chief.

        Args:
            ids: Of the rows, `[n]` int64.
        """
        values = np.empty([len(ids), self.layout.dim], np.float32)
        for part, mine, numbers in self._by_part(table, ids):
            with tf.device(self._devices[part]):
                rows = tf.constant(numbers, self.layout.id_dtype)
                values[mine] = self._rows.pull(part, rows).numpy()
        return values

    def tables_of(self, pulled: PulledRows) -> tf.Tensor:
        """As that of `RowGroup`."""
        return self.layout.table_of(pulled.ids)

    def tables_in_part(self, part: int, numbers: tf.Tensor) -> tf.Tensor:
        """As that of `RowGroup`."""
        return self.layout.table_of_numbers(part, numbers)

    def sample_rows(self, table: int, most: int) -> np.ndarray:
        """As that of `RowGroup`."""
        rows = self.layout.tables[table].rows
        ids = np.unique(np.linspace(0, rows - 1, min(rows, most), dtype=np.int64))
        return self.read_rows(table, ids)

    def slices(self) -> list[TensorSlice]:
        """What a checkpoint holds of the group."""
        rows, last_updates = self._rows.slices()
        return [
            *(
                dataclasses.replace(slice_, touched=touched)
                for slice_, touched in zip(rows, self._touched, strict=True)
            ),
            *last_updates,
        ]

    def _by_part(self, table: int, ids: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Where rows of a table lie: parts, which of the ids are theirs, and their rows in them."""
        numbers = self.layout.rows_of(table, ids)
        for part in range(len(self._devices)):
            first, end = self.layout.bounds(part)
            mine = (numbers >= first) & (numbers < end)
            if mine.any():
                yield part, mine, numbers[mine] - first

    def _marked(self, part: int, rows: tf.Tensor, writes: list[tf.Operation]) -> list[tf.Operation]:
        """Marks rows as touched after the writes, where they are; returns what writes."""
        # While the mutex is held: a worker that waits for the push waits for nothing else.
        return [touched.mark(rows, writes)] if (touched := self._touched[part]) else writes
