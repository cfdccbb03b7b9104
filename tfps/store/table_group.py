"""A group of tables on the ps, with a row for each id."""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from tfps.cluster.fetching import fetched
from tfps.store.group_layout import AskedIds, GroupLayout
from tfps.store.initializers import draw_rows, write_given_rows
from tfps.store.messages import PulledRows, ReadRows
from tfps.store.partitioned_variable import TensorSlice, TouchedRows, rows_at_once
from tfps.store.row_group import RowGroup


class TableGroup(RowGroup):
    """Tables with a row for each id."""

    layout: GroupLayout

    def _create(self, seed: int) -> None:
        layout, devices = self.layout, self._devices
        tracks = layout.mark_bytes(self.row.bytes)
        self._touched = [
            TouchedRows(layout, part, device) if tracks else None
            for part, device in enumerate(devices)
        ]
        for part, device in enumerate(devices):
            with tf.device(device):
                draw_rows(layout, part, seed, functools.partial(self._rows.begin, part))
        write_given_rows(layout, devices, seed, self._rows.begin)

    def find(self, asked: AskedIds) -> PulledRows:
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
        return ReadRows(owned, self._wire.send(self._rows.pull(part, owned, with_slots)))

    def begin_rows(self, table: int, ids: np.ndarray, rows: np.ndarray) -> None:
        """Gives rows of a table, `[n, dim]` float32, initial values, and their slots."""
        for part, mine, numbers in self._by_part(table, ids):
            with tf.device(self._devices[part]):
                self._rows.begin(part, tf.constant(numbers), tf.constant(rows[mine]))

    def set_rows(
        self, table: int, ids: np.ndarray, lines: np.ndarray, last_updates: np.ndarray | None
    ) -> None:
        """Overwrites rows of a table with their slots, `[n, size]` of `StoredRow`, float32."""
        updates = np.zeros(len(ids), np.int32) if last_updates is None else last_updates
        for part, mine, numbers in self._by_part(table, ids):
            with tf.device(self._devices[part]):
                stored = tf.stack(self.row.encode(self.row.split(tf.constant(lines[mine]))), 1)
                self._rows.set(part, tf.constant(numbers), stored, tf.constant(updates[mine]))

    def set_last_updates(self, updates: tf.Tensor) -> None:
        """Sets that no row has missed any of the updates so far, scalar int64."""
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
                        values[ids] = fetched(self._rows.pull(part, numbers))
        return values

    def read_run(self, part: int, first: int, count: int) -> tf.Tensor:
        """A run of a part's rows as they are now, `[count, dim]`; under its ps's device."""
        numbers = tf.range(first, first + count, dtype=self.layout.id_dtype)
        return self._rows.pull(part, numbers)

    def rows_at_once(self, rows: int = 0) -> int:
        """How many rows a ps reads at once; of `rows` in all if few turns are wanted."""
        return rows_at_once(self._rows.bytes_to_pull, rows)

    def read_rows(self, table: int, ids: np.ndarray) -> np.ndarray:
        values = np.empty([len(ids), self.layout.dim], np.float32)
        for part, mine, numbers in self._by_part(table, ids):
            with tf.device(self._devices[part]):
                rows = tf.constant(numbers, self.layout.id_dtype)
                values[mine] = fetched(self._rows.pull(part, rows))
        return values

    def tables_of(self, pulled: PulledRows) -> tf.Tensor:
        return self.layout.table_of(pulled.ids)

    def tables_in_part(self, part: int, numbers: tf.Tensor) -> tf.Tensor:
        return self.layout.table_of_numbers(part, numbers)

    def sample_rows(self, table: int, most: int) -> np.ndarray:
        rows = self.layout.tables[table].rows
        ids = np.unique(np.linspace(0, rows - 1, min(rows, most), dtype=np.int64))
        return self.read_rows(table, ids)

    def slices(self) -> list[TensorSlice]:
        rows, last_updates = self._rows.slices()
        return [
            *(
                dataclasses.replace(slice_, touched=touched)
                for slice_, touched in zip(rows, self._touched, strict=True)
            ),
            *last_updates,
        ]

    def _by_part(self, table: int, ids: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Where rows of a table lie: parts, which of the ids are theirs, and their rows there."""
        numbers = self.layout.rows_of(table, ids)
        for part in range(len(self._devices)):
            first, end = self.layout.bounds(part)
            mine = (numbers >= first) & (numbers < end)
            if mine.any():
                yield part, mine, numbers[mine] - first

    def _marked(self, part: int, rows: tf.Tensor, writes: list[tf.Operation]) -> list[tf.Operation]:
        # While the mutex is held: a worker that waits for the push waits for nothing else.
        return [touched.mark(rows, writes)] if (touched := self._touched[part]) else writes
