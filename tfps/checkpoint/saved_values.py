"""Reads checkpoints in one process: variables whole, tables chunk by chunk."""

import dataclasses
import math
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfps.checkpoint import commit_marker, reader
from tfps.checkpoint.checkpoint import (
    PREFIX,
    Checkpoint,
    DamagedCheckpointError,
    numbers_name,
    slice_specs,
    values_name,
)
from tfps.checkpoint.directory import CheckpointDirectory, no_checkpoint
from tfps.checkpoint.keyed_rows import SavedKeyedGroup
from tfps.cluster.failures import first_line
from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.store.group_layout import GroupLayout
from tfps.store.keyed_layout import keys_of_array
from tfps.store.partitioned_variable import TensorSlice, rows_at_once
from tfps.store.stored_row import StoredRow

_DEVICE = "/device:CPU:0"
_DROPPED_BITS = 12  # of a float32's mantissa: norms are equal within the 2,048th part
_BINS = 1 << (31 - _DROPPED_BITS)


def read_variables(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Dense parameters and state, such as BatchNorm statistics, by path, float32."""
    found: dict[str, np.ndarray] = {}
    for tensor in ("dense", "state"):
        if shapes := checkpoint.signature[tensor]:
            total = sum(math.prod(shape) for shape in shapes.values())
            flat = _slice(tensor, (total,), 0, total, tf.float32)
            reader.read(checkpoint, [flat])
            found |= _cut(flat.variable.numpy(), shapes)
    return found


@dataclasses.dataclass(frozen=True)
class SavedRows:
    """Some rows of a table, as their last updates left them."""

    table: str
    ids: np.ndarray  # `[n]` int64
    lines: np.ndarray  # rows with their slots, `[n, size]` of `StoredRow`, float32
    # the number of updates after each row's last one, `[n]` int32; None where rows change with own
    # updates only
    last_updates: np.ndarray | None


@dataclasses.dataclass(frozen=True)
class SavedGroup:
    """A group of tables in a checkpoint."""

    name: str
    layout: GroupLayout
    row: StoredRow
    # of rows that catch up with missed updates, whose last updates are kept; else None
    optimizer: Mapping[str, Any] | None

    @classmethod
    def all_in(cls, checkpoint: Checkpoint) -> list["SavedGroup"]:
        zeros, found = keras.initializers.Zeros(), []
        tables = {
            name: Table(name, rows, dim, zeros)
            for name, (rows, dim) in checkpoint.signature["tables"].items()
            if rows is not None  # one without a vocabulary; see `SavedKeyedGroup`
        }
        for name, part in checkpoint.signature.items():
            if name.startswith("tables_dim"):
                layout = GroupLayout(tuple(tables[each] for each in part["tables"]), parts=1)
                row = StoredRow.of_signature(layout.dim, part)
                optimizer = checkpoint.optimizers.get(name)
                found.append(cls(name, layout, row, optimizer))
        return found

    @property
    def tables(self) -> list[str]:
        return [table.name for table in self.layout.tables]

    def read(self, checkpoint: Checkpoint, tables: Collection[str]) -> Iterator[SavedRows]:
        """Reads all rows of some tables in one pass over the group, one chunk at a time."""
        wanted = [index for index, name in enumerate(self.tables) if name in tables]
        for first, count in self.runs() if wanted else ():
            values, last_updates = self.read_run(checkpoint, first, count)
            table, ids = self.layout.ids_of(np.arange(first, first + count, dtype=np.int64))
            for index in wanted:
                mine = np.flatnonzero(table == index)
                if not len(mine):
                    continue
                last = None if last_updates is None else last_updates[mine]
                yield SavedRows(self.tables[index], ids[mine], values[mine], last)

    def runs(self) -> Iterator[tuple[int, int]]:
        """First row and number of rows of each run to read, padding included."""
        total = self.layout.total_rows
        # TensorFlow looks through all slices of a tensor whenever it reads one.
        stride = rows_at_once(self.row.float_bytes, total)
        for first in range(0, total, stride):
            yield first, min(stride, total - first)

    def read_run(
        self, checkpoint: Checkpoint, first: int, count: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows and slots, `[count, size]` float32, and their last updates, `[count]` int32."""
        total, lines = self.layout.total_rows, self.row.lines
        shape, dtype = (total * lines, self.row.width), tf.as_dtype(self.row.dtype)
        slices = [_slice(self.name, shape, first, count, dtype, lines)]
        if self.optimizer is not None:
            slices.append(_slice(f"{self.name}/last_update", (total,), first, count, tf.int32))
        reader.read(checkpoint, slices)
        stored, *last_updates = (slice_.variable for slice_ in slices)
        values = self.row.decode_flat(stored.read_value())
        return values.numpy(), last_updates[0].numpy() if last_updates else None

    def read_touched(
        self, checkpoint: Checkpoint
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        """The rows that an increment holds: their numbers `[n]` int64, and as of `read_run`."""
        assert checkpoint.increment
        touched, lines = checkpoint.increment.touched(self.name), self.row.lines
        prefix = posixpath.join(checkpoint.path, PREFIX)
        for before, run in checkpoint.increment.offsets(self.name):
            with reader.explained(_DEVICE, prefix):
                numbers, stored = tf.raw_ops.RestoreV2(
                    prefix=prefix,
                    tensor_names=[numbers_name(self.name), values_name(self.name)],
                    shape_and_slices=slice_specs(
                        touched, lines * self.row.width, before, run.touched
                    ),
                    dtypes=[tf.int64, tf.as_dtype(self.row.dtype)],
                )
            values = self.row.decode_flat(tf.reshape(stored, [-1, lines, self.row.width]))
            rows = numbers.numpy()
            yield rows, values.numpy(), self._last_updates(checkpoint, rows)

    def _last_updates(self, checkpoint: Checkpoint, rows: np.ndarray) -> np.ndarray | None:
        """Those of ascending rows, `[n]` int32, read with what lies between; None without any."""
        if self.optimizer is None or not len(rows):
            return None
        first, count = int(rows[0]), int(rows[-1] - rows[0]) + 1
        total = (self.layout.total_rows,)
        slice_ = _slice(f"{self.name}/last_update", total, first, count, tf.int32)
        reader.read(checkpoint, [slice_])
        return np.asarray(slice_.variable.numpy())[rows - first]


def _slice(
    name: str, shape: tuple[int, ...], first: int, count: int, dtype: tf.DType, lines: int = 0
) -> TensorSlice:
    """A run of rows of a tensor, with a variable of this process to hold it.

    Where `lines` are given, rows are those of a table.
    """
    with tf.device(_DEVICE):
        held = [count, *([lines] if lines else []), *shape[1:]]
        variable = tf.Variable(tf.zeros(held, dtype), trainable=False)
    each = lines or 1
    return TensorSlice(name, shape, first * each, count * each, _DEVICE, variable, lines=each)


def _cut(flat: np.ndarray, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Variables, by path, that lie end to end."""
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    slices = np.split(flat, ends[:-1])
    return {
        path: slice_.reshape(shape)
        for slice_, (path, shape) in zip(slices, shapes.items(), strict=True)
    }


class UsedKey(NamedTuple):
    """A key of a table without a vocabulary, and its row."""

    key: int  # of a string, the 63 bits that it is known by
    uses: int
    last_update: int  # the number of updates after its last one
    norm: float


class Norms:
    """Euclidean lengths of rows, counted in 2^19 intervals."""

    def __init__(self) -> None:
        self.count, self.least, self.greatest = 0, 0.0, 0.0
        self._bins = np.zeros([_BINS], np.int64)

    def add(self, norms: np.ndarray) -> None:
        """Adds some, `[n]` float32."""
        if not len(norms):
            return
        least, greatest = float(norms.min()), float(norms.max())
        self.least = min(self.least, least) if self.count else least
        self.greatest = max(self.greatest, greatest)
        self.count += len(norms)
        # Numbers that are not negative are in the order of their bits.
        bins, counts = np.unique(norms.view(np.uint32) >> _DROPPED_BITS, return_counts=True)
        self._bins[bins] += counts

    @property
    def median(self) -> float:
        """The one in the middle, within the 2,048th part of it."""
        if not self.count:
            return 0.0
        middle = int(np.searchsorted(np.cumsum(self._bins), (self.count + 1) // 2))
        lower = np.array([middle << _DROPPED_BITS], np.uint32).view(np.float32)[0]
        return min(max(float(lower), self.least), self.greatest)


@dataclasses.dataclass
class TableSummary:
    """A table in a checkpoint."""

    name: str
    row: StoredRow
    has_keys: bool
    norms: Norms = dataclasses.field(default_factory=Norms)
    # the least and the greatest number of updates after a row's last one, where it is kept
    last_updates: tuple[int, int] | None = None
    most_used: list[UsedKey] = dataclasses.field(default_factory=list)

    def add(self, rows: np.ndarray, last_updates: np.ndarray | None) -> np.ndarray:
        """Adds rows `[n, dim]` with their last updates `[n]`; returns norms, `[n]` float32."""
        norms = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64)).astype(np.float32)
        self.norms.add(norms)
        if last_updates is not None and len(last_updates):
            least, greatest = int(last_updates.min()), int(last_updates.max())
            before = self.last_updates or (least, greatest)
            self.last_updates = min(before[0], least), max(before[1], greatest)
        return norms

    def add_used(self, used: Sequence[UsedKey], count: int) -> None:
        """Adds keys, and keeps the most used ones."""
        both = sorted([*self.most_used, *used], key=lambda each: (-each.uses, each.key))
        self.most_used = both[:count]


def summaries(checkpoint: Checkpoint, most_used: int) -> list[TableSummary]:
    """Reads all tables, a chunk of rows at a time."""
    found = {each.name: each for each in _with_ids(checkpoint)}
    found |= {each.name: each for each in _with_keys(checkpoint, most_used)}
    return [found[name] for name in checkpoint.signature["tables"]]


def _with_ids(checkpoint: Checkpoint) -> Iterator[TableSummary]:
    for group in SavedGroup.all_in(checkpoint):
        mine = {name: TableSummary(name, group.row, has_keys=False) for name in group.tables}
        for rows in group.read(checkpoint, group.tables):
            mine[rows.table].add(rows.lines[:, : group.row.dim], rows.last_updates)
        yield from mine.values()


def _with_keys(checkpoint: Checkpoint, most_used: int) -> Iterator[TableSummary]:
    for group in SavedKeyedGroup.all_in(checkpoint):
        layout = group.layout
        mine = [TableSummary(name, group.row, has_keys=True) for name in group.tables]
        for run in group.read(checkpoint):
            hashes, records = run.hashes.numpy(), run.records.numpy()
            rows = group.row.decode([run.lines[:, 0]])[0].numpy()
            for member, summary in enumerate(mine):
                of_table = np.flatnonzero(records[:, 0] == member)
                last, uses = records[of_table, 1], records[of_table, 2]
                norms = summary.add(rows[of_table], last)
                most = np.argsort(-uses, kind="stable")[:most_used]
                keys = keys_of_array(hashes[of_table[most]], layout.salts[member])
                columns = keys.tolist(), uses[most].tolist(), last[most].tolist()
                used = zip(*columns, norms[most].tolist(), strict=True)
                summary.add_used([UsedKey(*each) for each in used], most_used)
        yield from mine


def named_checkpoint(path: str) -> Checkpoint:
    """A committed checkpoint by path; whether its files are whole shows when they are read."""
    directory = path.rstrip("/")
    try:
        found = CheckpointDirectory.committed_at(directory)
        if not found:
            raise no_checkpoint(path)
        directory = found[-1]
        return commit_marker.read(directory)
    except FileNotFoundError:
        raise UserError(f"checkpoint {directory} was deleted meanwhile; name another") from None
    except DamagedCheckpointError as damage:
        raise UserError(f"checkpoint {directory} is damaged: {damage}; name another") from None


def dense_values(path: str) -> dict[str, np.ndarray]:
    """Reads a model's dense parameters and state, by path, float32.

    For inspection, or in `build_model()` for a model with the values of another and new tables:

        values = dense_values("gs://bucket/job")
        for variable in model.variables:
            if variable.path in values:
                variable.assign(values[variable.path])
    """
    checkpoint = named_checkpoint(path)
    try:
        for file in checkpoint.files:
            file.check(checkpoint.path)
        return read_variables(checkpoint)
    except DamagedCheckpointError as damage:
        raise UserError(
            f"checkpoint {checkpoint.path} is damaged: {damage}; name another"
        ) from None
    except tf.errors.OpError as error:
        said = first_line(error)
        raise UserError(f"checkpoint {checkpoint.path} cannot be read ({said})") from None
