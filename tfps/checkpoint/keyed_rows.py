"""Reads the rows of tables without vocabularies from a checkpoint, for any number of ps."""

import concurrent.futures
import contextlib
import dataclasses
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.checkpoint.checkpoint import PREFIX, Checkpoint, DamagedCheckpointError
from tfps.checkpoint.keyed_snapshot import changed_name, rows_per_chunk, slice_specs, tensor_names
from tfps.checkpoint.reader import explained, of_base
from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.layers.dynamic_embedding import KeyOptions
from tfps.store.keyed.group import KeyedGroup
from tfps.store.keyed.part import SavedKeys
from tfps.store.keyed_layout import KeyedLayout
from tfps.store.stored_row import StoredRow

_CHIEF = "/device:CPU:0"
# Hashes that a search reads at once. Hashes are evenly spread, so that of up to 10^9 the first look
# is where the one is that is looked for.
_WINDOW = 1 << 16
_GROUP = re.compile(r"keys_dim\d+(?:_(\d+))?")


class SortedRows:
    """Rows of a group, or its hashes alone, in one checkpoint's files."""

    def __init__(self, checkpoint: Checkpoint, row: StoredRow, name: str, is_of_base: bool = False):
        self._base = checkpoint.base.name if is_of_base and checkpoint.increment else None
        directory = checkpoint.base_path if is_of_base else checkpoint.path
        self._prefix = posixpath.join(directory, PREFIX)
        self._names = tensor_names(name)
        self._row = row
        self._dtypes = tf.int64, tf.int32, tf.as_dtype(row.dtype)
        self._stride = rows_per_chunk(row)
        with self._explained(_CHIEF):
            shapes = tf.train.load_checkpoint(self._prefix).get_variable_to_shape_map()
        # Of no rows nothing is written.
        self.total = int(shapes.get(self._names[0], [0])[0])

    def runs(self, first: int, end: int) -> list[tuple[int, int]]:
        """First row and number of rows of each run to read in `[first, end)`."""
        starts = range(first, end, self._stride)
        return [(start, min(self._stride, end - start)) for start in starts]

    def read(self, device: str, first: int, count: int) -> SavedKeys:
        return SavedKeys(*self._read(device, first, count, len(self._names)))

    def read_hashes(self, device: str, first: int, count: int) -> tf.Tensor:
        [hashes] = self._read(device, first, count, 1)
        return hashes

    def find(self, value: int, *, is_after: bool = False) -> int:
        """The number of the first row whose hash is at least `value`, or above it."""
        first, end = 0, self.total
        guess = (value + (1 << 63)) * self.total >> 64
        while first < end:
            count = min(_WINDOW, end - first)
            begin = min(max(first, guess - count // 2), end - count)
            hashes = np.asarray(self.read_hashes(_CHIEF, begin, count).numpy())
            place = int(np.searchsorted(hashes, value, "right" if is_after else "left"))
            if 0 < place < count:
                return begin + place
            first, end = (first, begin) if place == 0 else (begin + count, end)
            guess = (first + end) // 2
        return first

    def _read(self, device: str, first: int, count: int, fields: int) -> list[tf.Tensor]:
        """Reads a run of the first few tensors."""
        with self._explained(device), tf.device(device):
            return list(
                tf.raw_ops.RestoreV2(
                    prefix=self._prefix,
                    tensor_names=self._names[:fields],
                    shape_and_slices=slice_specs(self._row, self.total, first, count)[:fields],
                    dtypes=self._dtypes[:fields],
                )
            )

    @contextlib.contextmanager
    def _explained(self, device: str) -> Iterator[None]:
        try:
            with explained(device, self._prefix):
                yield
        except DamagedCheckpointError as damage:
            raise (of_base(self._base, damage) if self._base else damage) from None


@dataclasses.dataclass(frozen=True)
class SavedKeyedGroup:
    """A group of tables without vocabularies in a checkpoint."""

    layout: KeyedLayout  # its number of rows is not known
    row: StoredRow
    optimizer: Mapping[str, Any] | None  # of rows that catch up with missed updates

    @classmethod
    def all_in(cls, checkpoint: Checkpoint) -> list["SavedKeyedGroup"]:
        found, zeros, unknown = [], keras.initializers.Zeros(), KeyOptions(max_rows=1)
        dims = {name: dim for name, (_, dim) in checkpoint.signature["tables"].items()}
        for name, part in checkpoint.signature.items():
            if match := _GROUP.fullmatch(name):
                tables = [
                    Table(each, 1, dims[each], zeros, keys=unknown) for each in part["tables"]
                ]
                layout = KeyedLayout(tuple(tables), parts=1, number=int(match[1] or 0))
                optimizer = checkpoint.optimizers.get(name)
                row = StoredRow.of_signature(layout.dim, part)
                found.append(cls(layout, row, optimizer))
        return found

    @property
    def tables(self) -> list[str]:
        return [table.name for table in self.layout.tables]

    def read(self, checkpoint: Checkpoint) -> Iterator[SavedKeys]:
        """Reads all rows in the order of their hashes, one chunk at a time."""
        rows = SavedKeyedRows(checkpoint, self.layout, self.row)
        for first, count in rows.runs(0, rows.total):
            yield rows.read(_CHIEF, first, count)


class SavedKeyedRows:
    """The rows of a group in a checkpoint, in the order of their hashes.

    An increment holds the hashes of all keys and the rows that changed since its base; the other
    rows are the base's. Rows of the base whose keys are not among these are lost.
    """

    def __init__(self, checkpoint: Checkpoint, layout: KeyedLayout, row: StoredRow):
        name, increment = layout.name, checkpoint.increment
        self._name = name
        self._all = SortedRows(checkpoint, row, name)
        self._changed = self._base = None
        if increment and name in increment.tensors:
            self._changed = SortedRows(checkpoint, row, changed_name(name))
            self._base = SortedRows(checkpoint, row, name, is_of_base=True)
        self.total = self._all.total

    def bounds(self, layout: KeyedLayout) -> list[int]:
        """The number of each part's first row in a layout, then that of all rows."""
        firsts = [self._all.find(layout.first_hash(part)) for part in range(1, layout.parts)]
        return [0, *firsts, self.total]

    def runs(self, first: int, end: int) -> list[tuple[int, int]]:
        return self._all.runs(first, end)

    def read_hashes(self) -> np.ndarray:
        """The hashes of all keys, `[total]` int64, ascending."""
        runs = [self._all.read_hashes(_CHIEF, *run) for run in self.runs(0, self.total)]
        return np.concatenate([np.zeros([0], np.int64), *runs])

    def read_changed(self) -> Iterator[SavedKeys]:
        """The rows that the checkpoint itself holds, in the order of their hashes."""
        held = self._changed or self._all
        for run in held.runs(0, held.total):
            yield held.read(_CHIEF, *run)

    def read(self, device: str, first: int, count: int) -> SavedKeys:
        if self._changed is None or self._base is None:
            return self._all.read(device, first, count)
        hashes = self._all.read_hashes(device, first, count)
        pieces, places = [], []
        for source in (self._base, self._changed):
            for piece in _read_between(source, device, hashes):
                with tf.device(device):
                    place = tf.searchsorted(hashes, piece.hashes)
                    has_row = tf.equal(tf.gather(hashes, place), piece.hashes)
                    mine = tf.where(has_row)[:, 0]
                    pieces.append([tf.gather(each, mine) for each in piece[1:]])
                    places.append(tf.gather(place, mine))
        self._refuse_missing(places, count)
        with tf.device(device):
            # Where both have a row, the later one counts.
            records, lines = (tf.dynamic_stitch(places, each) for each in zip(*pieces, strict=True))
        return SavedKeys(hashes, records, lines)

    def _refuse_missing(self, places: Sequence[tf.Tensor], count: int) -> None:
        found = np.zeros([count], np.bool_)
        for each in places:
            found[each.numpy()] = True
        if missing := count - int(found.sum()):
            raise DamagedCheckpointError(
                f"{missing:,} rows of {self._name} are neither in it nor in its base"
            )


def _read_between(source: SortedRows, device: str, hashes: tf.Tensor) -> Iterator[SavedKeys]:
    """The rows from the first of some sorted hashes to the last, run by run."""
    first, end = source.find(int(hashes[0])), source.find(int(hashes[-1]), is_after=True)
    for run in source.runs(first, end):
        yield source.read(device, *run)


def read(checkpoint: Checkpoint, group: KeyedGroup, devices: Sequence[str]) -> None:
    """Replaces all rows of a group by those of a checkpoint."""
    saved = SavedKeyedRows(checkpoint, group.layout, group.row)
    bounds = saved.bounds(group.layout)
    room = group.layout.capacity - len(group.layout.tables)
    if (most := int(np.diff(bounds).max())) > room:
        names = ", ".join(table.name for table in group.layout.tables)
        raise UserError(
            f"checkpoint {checkpoint.path} has {saved.total:,} rows of {names}, {most:,} of them "
            f"for one ps, which has room for {room:,}: give max_rows at least the value that the "
            "checkpoint was made with, or use another --job_dir"
        )
    group.clear()

    def read_part(part: int) -> None:
        for first, count in saved.runs(bounds[part], bounds[part + 1]):
            group.put(part, saved.read(devices[part], first, count))

    with concurrent.futures.ThreadPoolExecutor(len(devices), "restore") as pool:
        list(pool.map(read_part, range(len(devices))))
