"""A group of tables without vocabularies on the ps, with their slots."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.cluster.fetching import fetched
from tfps.errors import UserError
from tfps.layers.dynamic_embedding import NO_ROW, TRAINED
from tfps.optimizers.missed_updates import MissedUpdates
from tfps.store.current_rows import not_inlined
from tfps.store.group_layout import AskedIds
from tfps.store.keyed.eviction import SLICE_ROWS
from tfps.store.keyed.part import AskedKeys, KeyedPart, KeyMessage, SavedKeys
from tfps.store.keyed.row_records import Count, rows_of
from tfps.store.keyed_layout import KeyedLayout, hashes_of_array
from tfps.store.messages import PulledRows, ReadRows
from tfps.store.partitioned_variable import CHUNK_BYTES, TensorSlice
from tfps.store.row_group import RowGroup


class KeyedGroup(RowGroup):
    """Tables that have a row for each key that occurs often enough in training.

    A worker sends a ps hashes of keys, in one message; the ps finds their rows, gives new keys one,
    and answers with the rows. Where they are stays on the ps, and the push finds it there. A push
    knows the rows that keys have lost meanwhile, and leaves those out.
    """

    layout: KeyedLayout

    def _create(self, seed: int) -> None:
        layout, devices = self.layout, self._devices
        self._message = KeyMessage(len(layout.tables), layout.options.counts)
        self._parts: list[KeyedPart] = []
        for part, device in enumerate(devices):
            with tf.device(device):
                self._parts.append(KeyedPart(layout, part, self._rows, seed))
        kinds = itertools.product(range(len(devices)), (False, True), (False, True))
        self._pulls = {kind: not_inlined(functools.partial(self._pulled, *kind)) for kind in kinds}
        self._admit = self._guarded(self._admitted)
        self._find_again = self._guarded(self._found_again)
        self._note = self._writing(lambda mine, *used: mine.records.use(*used)[-1])
        self._put = self._writing(lambda mine, *saved: mine.put(SavedKeys(*saved)))
        self._begin = self._writing(KeyedPart.begin)
        self._clear = self._writing(KeyedPart.clear)
        self._forget = self._asking(lambda mine, *slice_: mine.eviction.forget(*slice_))
        self._save = self._asking(lambda mine: mine.saved(*mine.in_order()))
        self._save_since = self._asking(KeyedPart.saved_since)
        self._count_since = self._asking(KeyedPart.counted_since)
        self._order = self._asking(KeyedPart.in_order)
        self._sample = self._asking(KeyedPart.sample)

    def find(self, asked: AskedIds) -> PulledRows:
        nothing, parts = tf.zeros([0, self.layout.dim]), self.layout.parts
        distinct, inverse = asked.distinct()
        assert distinct.tables is not None
        times = tf.ones_like(distinct.tables) if distinct.times is None else distinct.times
        keys = AskedKeys(distinct.ids, distinct.tables, times)
        if parts == 1:
            messages, where = [self._message.write(keys)], []
        else:
            owners = self.layout.owners(keys.hashes)
            where = tf.dynamic_partition(tf.range(tf.size(owners)), owners, parts)
            messages = [
                self._message.write(AskedKeys(*(tf.gather(each, mine) for each in keys)))
                for mine in where
            ]
        return PulledRows(keys.hashes, nothing, inverse, messages, where, keys.tables)

    def read_part(
        self, part: int, owned: tf.Tensor, with_slots: bool = False, is_training: bool = True
    ) -> ReadRows:
        """Reads rows; keys that have no row get one if they are trained."""
        # Of a frozen table, whose rows no update changes, they get none; as no push reports that
        # they occur, the pull does.
        pull = self._pulls[part, with_slots, is_training]
        places, rows = pull(tf.identity(owned), self._steps(part))
        return ReadRows(places, self._wire.send(rows))

    def caught_up(self, lines: tf.Tensor, missed: MissedUpdates) -> tf.Tensor:
        return self._but_unknown(super().caught_up(lines, missed), lines)

    def stepped(self, lines: tf.Tensor, gradient: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        return self._but_unknown(super().stepped(lines, gradient, step), lines)

    def _but_unknown(self, after: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
        """Changed rows, without those that stand for keys without a row."""
        if self.layout.options.unknown != TRAINED:
            return after
        return tf.where(tf.equal(before[:, :1], NO_ROW), before, after)

    def counts(self) -> dict[str, dict[str, int]]:
        """By table, the counts of its keys on all ps since these began, and its rows' `bytes`."""
        total = self._counts_by_part().sum(0)
        names = [each.name.lower() for each in Count]
        row_bytes = self.row.bytes + self.layout.mark_bytes(self.row.bytes)
        found = {}
        for k, table in enumerate(self.layout.tables):
            counts = dict(zip(names, total[:, k].tolist(), strict=True))
            found[table.name] = {**counts, "bytes": counts["rows"] * row_bytes}
        return found

    def forget(self, least_update: int) -> None:
        """Takes rows from keys that do not occur any more, or have a small norm; on the chief."""
        if self.rule.changes_nothing:  # they were given these rows, and would get none again
            return
        least = tf.constant(least_update, tf.int64)
        for part, device in enumerate(self._devices):
            first, end = 0, 0
            while end - first == SLICE_ROWS or not end:
                # A slice after the other, so that pulls and pushes come between.
                first = end
                with tf.device(device):
                    end = int(fetched(self._forget[part](tf.constant(first, tf.int64), least)))
                first = max(first, len(self.layout.tables))

    def begin_rows(self, table: int, ids: np.ndarray, rows: np.ndarray) -> None:
        """Gives rows `[n, dim]` to distinct keys that have none, and their slots; on the chief."""
        mine = self.layout.tables[table]
        counted = self._counts_by_part()[:, Count.ROWS]
        there = int(counted[:, table].sum())
        hashes = hashes_of_array(ids, self.layout.salts[table])
        owners = self.layout.part_of_hashes(hashes)
        by_part = counted.sum(1) + np.bincount(owners, minlength=self.layout.parts)
        most = int(by_part.max())
        if there + len(ids) > mine.rows or most > self.layout.capacity - len(self.layout.tables):
            raise UserError(
                f"table {mine.name!r} would begin with {there + len(ids):,} rows or more, but has "
                f"room for {mine.rows:,}: give its layer a larger max_rows"
            )
        run = max(1, CHUNK_BYTES // (self.layout.dim * tf.float32.size))
        for part, device in enumerate(self._devices):
            of_part = np.flatnonzero(owners == part)
            for first in range(0, len(of_part), run):
                some = of_part[first : first + run]
                with tf.device(device):
                    self._begin[part](
                        tf.constant(hashes[some]),
                        tf.constant(table),
                        tf.constant(rows[some], tf.float32),
                        self._steps(part),
                    )

    def read_rows(self, table: int, ids: np.ndarray) -> np.ndarray:
        asked = self.layout.ids_in_group([table], [tf.constant(ids, tf.int64)])
        pulled = self.pull(asked, is_training=False)
        return fetched(tf.gather(pulled.rows, pulled.inverse))

    def tables_of(self, pulled: PulledRows) -> tf.Tensor:
        assert pulled.tables is not None
        return pulled.tables

    def tables_in_part(self, part: int, numbers: tf.Tensor) -> tf.Tensor:
        return self._parts[part].records.tables_of(numbers)

    def sample_rows(self, table: int, most: int) -> np.ndarray:
        each = max(1, most // self.layout.parts)
        found = [np.zeros([0, self.layout.dim], np.float32)]
        for part, device in enumerate(self._devices):
            with tf.device(device):
                rows = self._sample[part](tf.constant(table), tf.constant(each))
                found.append(fetched(self.read_numbers(part, rows)))
        return np.concatenate(found)

    def slices(self) -> list[TensorSlice]:
        """None: a checkpoint holds as many rows as there are when it is saved."""
        return []

    def save(self, part: int) -> SavedKeys:
        with tf.device(self._devices[part]):
            return SavedKeys(*self._save[part]())

    def save_since(self, part: int, steps: int) -> tuple[tf.Tensor, SavedKeys]:
        """Hashes of all keys of a part, ascending, and the rows changed since; on the chief."""
        with tf.device(self._devices[part]):
            hashes, saved = self._save_since[part](tf.constant(steps, tf.int64))
        return hashes, SavedKeys(*saved)

    def count_since(self, steps: int) -> np.ndarray:
        """How many rows each table has, and how many `save_since` gives, `[2, tables]`."""
        total = np.zeros([2, len(self.layout.tables)], np.int64)
        for part, device in enumerate(self._devices):
            with tf.device(device):
                total += fetched(self._count_since[part](tf.constant(steps, tf.int64)))
        return total

    def in_order(self, part: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Hashes of a part's keys, ascending, and their rows, `[n]` int64; on the chief."""
        with tf.device(self._devices[part]):
            hashes, rows = self._order[part]()
        return hashes, rows

    def read_numbers(self, part: int, rows: tf.Tensor) -> tf.Tensor:
        return self._rows.pull(part, rows)

    def put(self, part: int, saved: SavedKeys) -> None:
        with tf.device(self._devices[part]):
            self._put[part](*saved)

    def clear(self) -> None:
        for part, device in enumerate(self._devices):
            with tf.device(device):
                self._clear[part]()

    def _counts_by_part(self) -> np.ndarray:
        found = []
        for part, device in zip(self._parts, self._devices, strict=True):
            with tf.device(device):
                found.append(fetched(part.counts.read()))
        return np.stack(found)

    def _pulled(
        self, part: int, with_slots: bool, is_training: bool, message: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        keys = self._message.read(message)

        def pull(is_training: bool) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            times, places = self._located(part, keys, step, is_training)
            rows = self._rows.pull(part, rows_of(places), with_slots)
            with tf.control_dependencies([rows]):
                # No rows were taken meanwhile.
                is_whole = tf.equal(self._parts[part].eviction.times.read_value(), times)
                return places, rows, is_whole

        is_frozen = self.rule.changes_nothing
        places, rows, is_whole = pull(is_training and not is_frozen)
        if self.layout.options.loses_rows:
            # A row may have gone to another key between the search for it and its reading. Keys
            # that have occurred once are not counted once more.
            shapes = tf.TensorShape([None]), rows.shape, tf.TensorShape([])
            places, rows, _ = tf.while_loop(
                lambda places, rows, is_whole: ~is_whole,
                lambda places, rows, is_whole: pull(False),
                (places, rows, is_whole),
                shapes,
            )
        if is_training and is_frozen:
            self._note[part](places, step)
        return places, rows

    def _located(
        self, part: int, keys: AskedKeys, step: tf.Tensor, is_training: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The evictions before a search, and the places that it found."""
        mine = self._parts[part]
        before = mine.eviction.times.read_value()
        with tf.control_dependencies([before]):
            found = mine.find(keys)
        missing = tf.where(found < len(self.layout.tables))[:, 0]

        def look_again() -> tf.Tensor:
            some = [tf.gather(each, missing) for each in keys]
            places = (
                self._admit[part](*some, step) if is_training else self._find_again[part](*some)
            )
            return tf.tensor_scatter_nd_update(found, missing[:, tf.newaxis], places)

        return before, tf.cond(tf.size(missing) > 0, look_again, lambda: found)

    def _admitted(self, part: int, *asked: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
        """The part of a trained pull that holds the mutex, for keys that it did not find."""
        *keys, step = asked
        places, done = self._parts[part].admit(AskedKeys(*keys), step)
        return places, [done]

    def _found_again(self, part: int, *keys: tf.Tensor) -> tuple[tf.Tensor, list[tf.Operation]]:
        """The same of another pull: so it misses no key that is being moved."""
        return self._parts[part].find(AskedKeys(*keys)), []

    def _asking(self, ask: Callable[..., Any]) -> list[tf.types.experimental.PolymorphicFunction]:
        """For each ps, a question to its part while nobody else changes it."""
        return self._guarded(lambda part, *needed: (ask(self._parts[part], *needed), []))

    def _writing(
        self, write: Callable[..., tf.Operation]
    ) -> list[tf.types.experimental.PolymorphicFunction]:
        """For each ps, a change of its part that returns only that it is made."""
        return self._guarded(
            lambda part, *needed: (tf.constant(True), [write(self._parts[part], *needed)])
        )

    def _found(
        self, part: int, numbers: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor], list[tf.Operation]]:
        there, noted = self._parts[part].use(numbers, step)
        rows = tf.gather(rows_of(numbers), there)
        return rows, lambda values: tf.gather(values, there), [noted]
