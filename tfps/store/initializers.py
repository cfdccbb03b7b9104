"""Initial values of rows: drawn, the same for any number of ps, or given in files."""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfps.data.key_rows import KEY, KeyRows
from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.layers import id_check
from tfps.layers.dynamic_embedding import MEAN, NO_ROW, TRAINED, string_keys
from tfps.model.initial_values import is_drawn_by_element, rows_of
from tfps.store.group_layout import GroupLayout
from tfps.store.partitioned_variable import CHUNK_BYTES

_DRAWN_BITS = 23  # so that float32 holds the middle between two numbers: none is rounded to 1
_AT_ONCE = 64  # values of the widest registers there are, four times unrolled
_ODD = np.uint64(0xD1342543DE82EF95)  # by which the numbers of a row's values lie apart
# Part of a normal distribution below -2 standard deviations, where TruncatedNormal ends.
_BELOW_CUT = 0.022750131948179195


def _seedless_config(initializer: keras.initializers.Initializer) -> dict[str, Any]:
    return {k: v for k, v in initializer.get_config().items() if k != "seed"}


def mean_of(initializer: keras.initializers.Initializer) -> float:
    config = initializer.get_config()
    if isinstance(initializer, keras.initializers.RandomUniform):
        return float(config["minval"] + config["maxval"]) / 2
    if isinstance(initializer, keras.initializers.Ones):
        return 1.0
    return float(config.get("mean", config.get("value", 0.0)))


def unknown_rows(tables: Sequence[Table]) -> np.ndarray:
    """What tables give keys without a row, `[tables, dim]` float32."""
    rows = np.zeros([len(tables), tables[0].dim], np.float32)
    for row, table in zip(rows, tables, strict=True):
        unknown = table.keys and table.keys.unknown
        if unknown == MEAN:
            row[:] = mean_of(table.initializer)
        elif unknown == TRAINED:
            row[:] = NO_ROW
    return rows


class InitialRows:
    """Draws rows of keys, by table, key and seed alone: the same on any number of ps."""

    def __init__(self, tables: Sequence[Table], seed: int):
        self._dim = tables[0].dim
        self._stream = (seed * id_check.GOLDEN) % (1 << 64)
        self._initializers: list[keras.initializers.Initializer] = []
        configs: list[str] = []
        which = []
        for table in tables:
            config = _seedless_config(table.initializer)
            name = f"{type(table.initializer).__name__} {config}"
            if name not in configs:
                configs.append(name)
                self._initializers.append(table.initializer)
            which.append(configs.index(name))
        self._which = which

    def draw(self, hashes: tf.Tensor, tables: tf.Tensor) -> tf.Tensor:
        count = tf.size(hashes)
        # TensorFlow's kernels draw several values at once, and the rest one by one, which
        # gives some another last bit: so nothing is left over, however many keys come at once.
        hashes, tables = (tf.pad(each, [[0, -count % _AT_ONCE]]) for each in (hashes, tables))
        numbers = tf.constant(np.arange(1, self._dim + 1, dtype=np.uint64) * _ODD)
        bits = tf.bitwise.bitwise_xor(
            tf.bitcast(hashes, tf.uint64), tf.constant(self._stream, tf.uint64)
        )
        mixed = id_check.mix(bits[:, tf.newaxis] + numbers)
        high = tf.bitwise.right_shift(mixed, tf.constant(64 - _DRAWN_BITS, tf.uint64))
        # Neither 0 nor 1.
        uniform = (tf.cast(tf.cast(high, tf.int32), tf.float32) + 0.5) / (1 << _DRAWN_BITS)
        drawn = [_drawn(initializer, uniform) for initializer in self._initializers]
        if len(drawn) == 1:
            return drawn[0][:count]
        which = tf.gather(tf.constant(self._which), tables)
        return tf.gather(tf.stack(drawn, 1), which, batch_dims=1)[:count]


def _drawn(initializer: keras.initializers.Initializer, uniform: tf.Tensor) -> tf.Tensor:
    config = initializer.get_config()
    if isinstance(initializer, keras.initializers.RandomUniform):
        return config["minval"] + (config["maxval"] - config["minval"]) * uniform
    if isinstance(initializer, keras.initializers.TruncatedNormal):
        inside = _BELOW_CUT + uniform * (1 - 2 * _BELOW_CUT)
        return config["mean"] + config["stddev"] * tf.math.ndtri(inside)
    if isinstance(initializer, keras.initializers.RandomNormal):
        return config["mean"] + config["stddev"] * tf.math.ndtri(uniform)
    return tf.fill(tf.shape(uniform), np.float32(mean_of(initializer)))


def given_rows(table: Table) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows that a table's files name, about 48 MiB at a time."""
    # Ids, or keys of a table without a vocabulary, `[n]` int64, and their rows `[n, dim]` float32.
    # It keeps the ids that it has given, 8 bytes each, to refuse repeated ones.
    seen = np.zeros([0], np.int64)
    for pieces in _chunks(table):
        keys = [_ids(table, piece) for piece in pieces]
        together = np.concatenate(keys)
        distinct, first = np.unique(together, return_index=True)
        is_first = np.zeros([len(together)], np.bool_)
        is_first[first] = True
        again = np.flatnonzero(~is_first | np.isin(together, seen, assume_unique=False))
        if len(again):
            raise UserError(f"table {table.name!r}: {_where(pieces, int(again[0]))} came before")
        seen = np.union1d(seen, distinct)
        yield together, np.concatenate([piece.vectors for piece in pieces])


def _chunks(table: Table) -> Iterator[list[KeyRows]]:
    assert table.rows_from
    chunk: list[KeyRows] = []
    for piece in table.rows_from.read():
        chunk.append(piece)
        if sum(each.vectors.nbytes for each in chunk) >= CHUNK_BYTES:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _ids(table: Table, piece: KeyRows) -> np.ndarray:
    """The ids, or the keys as the table has them, `[n]` int64."""
    if piece.keys.dtype == object:
        return np.asarray(string_keys(tf.constant(piece.keys)).numpy())
    ids = piece.keys.astype(np.int64)
    outside = np.flatnonzero((ids < 0) | (ids >= table.rows))
    if not table.keys and len(outside):
        raise UserError(
            f"table {table.name!r}: {_where([piece], int(outside[0]))} is no id of the table, "
            f"which are 0 to {table.rows - 1:,}"
        )
    return ids


def _where(pieces: list[KeyRows], index: int) -> str:
    for piece in pieces:
        if index < len(piece.keys):
            [key] = piece.keys[index : index + 1].tolist()
            return f"{piece.where(index)}: {KEY} {key!r}"
        index -= len(piece.keys)
    raise IndexError(index)


def write_given_rows(
    layout: GroupLayout,
    devices: Sequence[str],
    seed: int,
    write: Callable[[int, tf.Tensor, tf.Tensor], None],
) -> None:
    """Writes the rows of tables whose values are not drawn on the ps, some at a time."""
    run = max(1, CHUNK_BYTES // (4 * layout.dim))
    for index, table in enumerate(layout.tables):
        if is_drawn_by_element(table.initializer):
            continue
        given = rows_of(table) or _whole(table, seed)
        rows = layout.rows_of(index)
        for part, device in enumerate(devices):
            first, end = layout.bounds(part)
            ids = np.flatnonzero((rows >= first) & (rows < end))
            for start in range(0, len(ids), run):
                some = ids[start : start + run]
                values = given(some)
                with tf.device(device):
                    write(part, tf.constant(rows[some] - first), tf.constant(values))


def _whole(table: Table, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """The rows of a table whose initializer must see all of it, drawn as Keras draws it."""
    # For a function without a seed of its own: replicas must draw the same.
    keras.utils.set_random_seed((seed + zlib.crc32(table.name.encode())) % 2**32)
    values = np.asarray(table.initializer((table.rows, table.dim), dtype="float32"), np.float32)
    return lambda ids: values[ids]


class _Drawing(NamedTuple):
    """How a table's values are drawn: those of a unit distribution, times a scale, plus a shift.

    So tables of one distribution need one draw, whatever their bounds.
    """

    unit: Callable[..., tf.Tensor] | None  # by shape and seed; None where all values are equal
    scale: np.float32
    shift: np.float32

    @classmethod
    def of(cls, table: Table) -> "_Drawing":
        """The drawing of a table; of one whose rows are not drawn by element, zeros."""
        if not is_drawn_by_element(table.initializer):
            return cls(None, np.float32(0), np.float32(0))
        initializer = _without_fan(table)
        config = initializer.get_config()
        if isinstance(initializer, keras.initializers.RandomUniform):
            low, high = np.float32(config["minval"]), np.float32(config["maxval"])
            return cls(tf.random.stateless_uniform, high - low, low)
        unit = {
            keras.initializers.RandomNormal: tf.random.stateless_normal,
            keras.initializers.TruncatedNormal: tf.random.stateless_truncated_normal,
        }.get(type(initializer))
        stddev = config["stddev"] if unit else 0
        return cls(unit, np.float32(stddev), np.float32(mean_of(initializer)))


def draw_rows(
    layout: GroupLayout, part: int, seed: int, write: Callable[[tf.Tensor, tf.Tensor], None]
) -> None:
    """Draws one ps's rows of a group on the device in scope, one bucket after the other."""
    # Rows of tables whose initializers do not draw every value by itself become 0. Every bucket is
    # drawn from its own seed, so a row's value depends on the run's seed and its bucket, not on the
    # number of ps. A bucket that several ps have rows of is drawn by each as a whole. `write` is
    # traced once.
    drawings = [_Drawing.of(table) for table in layout.tables]
    stream = (seed * 0x9E3779B1 + zlib.crc32(layout.name.encode())) % 2**62
    first, end = layout.buckets(part)
    first_row, end_row = layout.bounds(part)

    def fill(bucket: tf.Tensor) -> list[tf.Tensor]:
        start = bucket * layout.bucket_rows
        begin = tf.maximum(start, first_row)
        stop = tf.minimum(start + layout.bucket_rows, end_row)
        rows = _bucket_rows(layout, drawings, stream, bucket)[begin - start : stop - start]
        write(tf.range(begin, stop) - first_row, rows)
        return [bucket + 1]

    @tf.function(autograph=False)
    def fill_all() -> None:
        start = tf.constant(first, tf.int64)
        tf.while_loop(lambda bucket: bucket < end, fill, [start], parallel_iterations=1)

    fill_all.get_concrete_function()()


def _bucket_rows(
    layout: GroupLayout, drawings: Sequence[_Drawing], stream: int, bucket: tf.Tensor
) -> tf.Tensor:
    """The drawn rows of a bucket, `[bucket_rows, dim]`."""
    seed = tf.stack([tf.constant(stream, tf.int64), bucket])
    # As `keras.random` makes one of int64: XLA draws by int32 alone.
    seed = tf.cast(tf.math.floormod(seed, tf.int32.max - 1), tf.int32)
    shape = (layout.bucket_rows, layout.dim)
    units = list(dict.fromkeys(drawing.unit for drawing in drawings if drawing.unit))
    drawn = [unit(shape, seed) for unit in units] or [tf.zeros(shape)]
    if len(set(drawings)) == 1:
        return drawn[0] * drawings[0].scale + drawings[0].shift
    tables = layout.table_of_rows(bucket)

    def of_rows(values: Sequence[Any]) -> tf.Tensor:
        return tf.gather(tf.constant(values), tables)[:, tf.newaxis]

    values = drawn[0]
    for number, others in enumerate(drawn[1:], 1):
        is_of_unit = of_rows([drawing.unit is units[number] for drawing in drawings])
        values = tf.where(is_of_unit, others, values)
    scales = of_rows([drawing.scale for drawing in drawings])
    return values * scales + of_rows([drawing.shift for drawing in drawings])


def _without_fan(table: Table) -> keras.initializers.Initializer:
    """Replaces an initializer that needs the whole table's shape by its equal that does not."""
    # The scales are those of `keras.initializers.VarianceScaling`, with fan_in = rows and fan_out =
    # dim.
    initializer = table.initializer
    if not isinstance(initializer, keras.initializers.VarianceScaling):
        return initializer
    fans = {"fan_in": table.rows, "fan_out": table.dim, "fan_avg": (table.rows + table.dim) / 2}
    variance = initializer.scale / max(1.0, fans[initializer.mode])
    if initializer.distribution == "uniform":
        limit = math.sqrt(3.0 * variance)
        return keras.initializers.RandomUniform(-limit, limit)
    if initializer.distribution == "untruncated_normal":
        return keras.initializers.RandomNormal(0.0, math.sqrt(variance))
    truncated = 0.87962566103423978  # standard deviation of a unit normal cut at 2
    return keras.initializers.TruncatedNormal(0.0, math.sqrt(variance) / truncated)
