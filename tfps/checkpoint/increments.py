"""Decides which checkpoints are full ones, and plans the others."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfps.checkpoint.checkpoint import Base, Checkpoint, Increment, RowRun
from tfps.checkpoint.keyed_snapshot import HASH_BYTES, RECORD_BYTES
from tfps.cluster.fetching import fetched
from tfps.store.group_layout import TRACKED_BYTES
from tfps.store.keyed.group import KeyedGroup
from tfps.store.partitioned_variable import CHUNK_BYTES, TensorSlice, TouchedCounts, TouchedRows

_NUMBER_BYTES = 8  # of a touched row's number


def trace_now(graph: Callable[..., Any], signature: Sequence[tf.TensorSpec] = ()) -> Any:
    """A function as a graph, made now.

    Each task gets a new graph, and TensorFlow waits for all: in the middle of a run a hanging
    worker could stop the chief. An operation by itself is such a graph, too, at its first call.
    """
    return tf.function(graph, list(signature), autograph=False).get_concrete_function()


@dataclasses.dataclass(frozen=True)
class _KeyedSize:
    """The size of a group of tables without vocabularies in a checkpoint, in bytes."""

    name: str
    full: int
    # of an increment: the hashes of all keys, and the rows that changed since its base
    changed: int

    @property
    def is_whole(self) -> bool:
        """Whether an increment holds all of its rows, since there are few."""
        return self.full < TRACKED_BYTES

    @property
    def bytes(self) -> int:
        return self.full if self.is_whole else self.changed


class Increments:
    """The marks of touched rows, from one full checkpoint to the next.

    An increment holds every row touched since the last full checkpoint, so it needs that one alone;
    or since the one before, for whoever has that.
    Of tables without vocabularies each row says when it was changed last.
    """

    def __init__(self, slices: Sequence[TensorSlice], keyed: Sequence[KeyedGroup], largest: float):
        self._tracked = [slice_ for slice_ in slices if slice_.touched]
        self._keyed = keyed
        self._full = sum(slice_.total_bytes for slice_ in slices)
        self._other = self._full - sum(slice_.total_bytes for slice_ in self._tracked)
        self._largest = largest
        self.touched_rows: dict[str, int] = {}
        self._base: Base | None = None
        self._before: Base | None = None  # the base before
        self._is_full = True
        self._freeze = trace_now(self._freeze_and_count, [tf.TensorSpec([], tf.bool)])
        self._forget = trace_now(lambda: self._each(TouchedRows.forget))
        self._thaw = trace_now(lambda: self._each(TouchedRows.thaw))

    def resume_from(self, checkpoint: Checkpoint) -> None:
        self._base = checkpoint.base

    def begin(self, is_full: bool, since: str | None = None) -> Increment | None:
        """Decides what to save, before the parameters are read; the marks stay frozen.

        An increment has what has changed since the full checkpoint `since`, if that is the one
        before its base.
        """
        increment = None
        if self._before and self._before.name == since and not is_full:
            increment = self._plan(self._before, is_full)
        increment = increment or self._plan(self._base, is_full)
        self._is_full = increment is None
        if self._is_full and self._tracked:
            self._forget()
        return increment

    def end(self) -> None:
        """Releases what `begin` froze."""
        if self._tracked:
            self._thaw()

    def committed(self, checkpoint: Checkpoint) -> None:
        """Notes that what `begin` decided was committed."""
        if self._is_full:
            # A state that was saved already may be an increment: the marks then have no base.
            self._before = None if checkpoint.increment else self._base
            self._base = None if checkpoint.increment else checkpoint.base

    def _plan(self, since: Base | None, is_full: bool) -> Increment | None:
        """Counts what has changed since a full checkpoint, and plans the increment that holds it.

        None if it is not wanted, too large, or would hold everything.
        """
        counts = self._freeze(tf.constant(since != self._base)) if self._tracked else []
        self.touched_rows = self._sum_by_table(counts)
        steps = since.steps if since else 0
        keyed = [self._count_keyed(group, steps) for group in self._keyed]
        if not self._base or is_full:
            return None
        by_run = [fetched(count.by_run) for count in counts]
        runs = list(itertools.chain.from_iterable(map(_runs, self._tracked, by_run)))
        row_bytes = {slice_.name: slice_.row_bytes + _NUMBER_BYTES for slice_ in self._tracked}
        size = self._other + sum(run.touched * row_bytes[run.tensor] for run in runs)
        size += sum(group.bytes for group in keyed)
        full = self._full + sum(group.full for group in keyed)
        tensors = *row_bytes, *(group.name for group in keyed if not group.is_whole)
        if size > self._largest * full or not tensors:
            return None
        before = since if since != self._base else None
        return Increment(self._base, tensors, tuple(runs), before)

    def _count_keyed(self, group: KeyedGroup, since: int) -> _KeyedSize:
        """Counts the rows of a group, and notes how many of each table changed after `since`."""
        rows, changed = group.count_since(since)
        layout = group.layout
        names = [table.name for table in layout.tables]
        self.touched_rows |= dict(zip(names, changed.tolist(), strict=True))
        row_bytes = group.row.bytes + RECORD_BYTES
        total, late = int(rows.sum()), int(changed.sum())
        return _KeyedSize(layout.name, total * row_bytes, total * HASH_BYTES + late * row_bytes)

    def _freeze_and_count(self, with_before: tf.Tensor) -> list[TouchedCounts]:
        counts = []
        for slice_ in self._tracked:
            assert slice_.touched
            with tf.device(slice_.device):
                slice_.touched.freeze(with_before)
                counts.append(slice_.touched.counts(_stride(slice_)))
        return counts

    def _sum_by_table(self, counts: Sequence[TouchedCounts]) -> dict[str, int]:
        found: collections.Counter[str] = collections.Counter()
        for slice_, count in zip(self._tracked, counts, strict=True):
            assert slice_.touched
            by_table = fetched(count.by_table).tolist()
            found.update(dict(zip(slice_.touched.tables, by_table, strict=True)))
        return dict(found)

    def _each(self, change: Callable[[TouchedRows], None]) -> None:
        for slice_ in self._tracked:
            assert slice_.touched
            with tf.device(slice_.device):
                change(slice_.touched)


def _stride(slice_: TensorSlice) -> int:
    """Rows, with their numbers, that fill a chunk; a multiple of 128 for their marks."""
    return max(128, CHUNK_BYTES // (slice_.row_bytes + _NUMBER_BYTES) // 128 * 128)


def _runs(slice_: TensorSlice, counts: np.ndarray) -> Iterable[RowRun]:
    """Runs whose touched rows fit a chunk, as few as joining neighbours gives."""
    stride, (first, last), touched = _stride(slice_), slice_.rows, 0
    bounds = range(first, last, stride)
    for bound, count in zip([*bounds, last], [*counts.tolist(), stride], strict=True):
        if touched and touched + count > stride:
            yield RowRun(slice_.name, first, bound, touched)
            first, touched = bound, 0
        touched += count


class Snapshot:
    """A second variable for every slice, on the same ps, empty between two saves.

    Taking it costs no time: both share memory until one is written to. So the first update after it
    costs a copy, on its ps.
    """

    def __init__(self, slices: Sequence[TensorSlice]):
        self._sources = slices
        self.slices = [dataclasses.replace(slice_, variable=_empty(slice_)) for slice_ in slices]
        # Takes the values of the store, while no worker changes them.
        self.take = trace_now(self._assign_sources)
        self.clear = trace_now(self._assign_nothing)

    def _assign_sources(self) -> None:
        for source, slice_ in zip(self._sources, self.slices, strict=True):
            with tf.device(slice_.device):
                slice_.variable.assign(source.read(), read_value=False)

    def _assign_nothing(self) -> None:
        for slice_ in self.slices:
            with tf.device(slice_.device):
                nothing = tf.zeros([0], slice_.variable.dtype)
                slice_.variable.assign(nothing, read_value=False)


def _empty(slice_: TensorSlice) -> tf.Variable:
    with tf.device(slice_.device):
        nothing = tf.zeros([0], slice_.variable.dtype)
        return tf.Variable(nothing, trainable=False, shape=tf.TensorShape(None))
