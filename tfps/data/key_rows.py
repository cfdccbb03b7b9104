"""Keys with a vector each, as Parquet files or TFRecord files hold them."""

import dataclasses
import itertools
import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfps.data import bad_records, examples, parquet
from tfps.data.feature import Feature
from tfps.data.row_format import RowFormat
from tfps.data.tfrecord import StoredRecord, compression_of, scan
from tfps.errors import UserError, listed
from tfps.storage import files
from tfps.storage.failures import explain

KEY, VECTOR = "key", "vector"
_PIECE_RECORDS = 1 << 14
_IS_KEY: dict[str, Callable[[Any], bool]] = {
    "int64": lambda value: type(value) is int and -(1 << 63) <= value < 1 << 63,
    "string": lambda value: isinstance(value, (str, bytes)),
}


class KeyRows(NamedTuple):
    """Keys `[n]`, int64 or bytes objects, and their vectors `[n, dim]`, finite float32."""

    keys: np.ndarray
    vectors: np.ndarray
    where: Callable[[int], str]


@dataclasses.dataclass(frozen=True)
class KeyRowFiles:
    """Files that hold keys (int64 or string) and vectors.

    A Parquet file has a column `key` of integers or strings and a column `vector` of lists of
    numbers; a record of a TFRecord file has the features `key` and `vector`.
    """

    path: str
    key_dtype: str
    dim: int

    def paths(self) -> list[str]:
        path = self.path
        if files.is_directory(path):
            names = [n for n in files.names(path) if ".tfrecord" in n or n.endswith(".parquet")]
            found = [posixpath.join(path, name) for name in sorted(names) if name[0] not in "._"]
        else:
            found = sorted(tf.io.gfile.glob(path)) if any(sign in path for sign in "*?[") else []
            found = [path] if files.exists(path) else found
        if not found:
            raise UserError(
                f"{path}: no file with .tfrecord in its name or .parquet at its end, of keys and "
                "their vectors"
            )
        return found

    def read(self) -> Iterator[KeyRows]:
        """All rows of all files, some at a time."""
        for path in self.paths():
            try:
                is_parquet = parquet.is_parquet(path)
                yield from (self._of_parquet if is_parquet else self._of_records)(path)
            except tf.errors.OpError as error:
                raise explain(error, "read", path) from None

    def _of_records(self, path: str) -> Iterator[KeyRows]:
        wanted = Feature(KEY, self.key_dtype), Feature(VECTOR, "float32", (self.dim,))
        records = scan(path, compression_of(path))
        while some := list(itertools.islice(records, _PIECE_RECORDS)):
            for record in some:
                problem = record.problem or bad_records.find_problem(record.data or b"", wanted)
                if problem:
                    raise UserError(f"{path}: record {record.number} {problem}")
            parsed, _ = examples.parse(tf.constant([record.data for record in some]), wanted)
            where = _namer(path, some)
            yield self._checked(parsed[KEY].numpy(), parsed[VECTOR].numpy(), where)

    def _of_parquet(self, path: str) -> Iterator[KeyRows]:
        names = parquet.column_names(path)
        if missing := [name for name in (KEY, VECTOR) if name not in names]:
            raise UserError(f"{path} has no column {listed(missing)} (it has {listed(names)})")
        no_fields = RowFormat((), ",", {})
        for block in parquet.parquet_blocks(path, no_fields, (KEY, VECTOR), _PIECE_RECORDS):

            def where(index: int, block: parquet.ParquetBlock = block) -> str:
                return block.where(block.before + index + 1)

            lists = block.batch.column(VECTOR)
            if not parquet.is_list(lists.type):
                raise UserError(f"{path} column {VECTOR} is of type {lists.type}, not of lists")
            lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            if len(wrong := np.flatnonzero(lengths != self.dim)):
                raise UserError(
                    f"{where(int(wrong[0]))}: {VECTOR!r} has {lengths[wrong[0]]} numbers instead "
                    f"of {self.dim}"
                )
            flat = lists.flatten().to_numpy(zero_copy_only=False)
            vectors = np.asarray(flat, np.float32).reshape(-1, self.dim)
            yield self._checked(self._keys(block.batch.column(KEY), where), vectors, where)

    def _keys(self, column: Any, where: Callable[[int], str]) -> np.ndarray:
        """The keys of a column of Parquet."""
        values, is_key = column.to_pylist(), _IS_KEY[self.key_dtype]
        for index, value in enumerate(values):
            if not is_key(value):
                raise UserError(f"{where(index)}: {KEY!r} is {value!r}, not {self.key_dtype}")
        if self.key_dtype == "int64":
            return np.array(values, np.int64)
        as_bytes = [value.encode() if isinstance(value, str) else value for value in values]
        return np.array(as_bytes, object)

    @staticmethod
    def _checked(keys: np.ndarray, vectors: np.ndarray, where: Callable[[int], str]) -> KeyRows:
        is_bad = ~np.isfinite(vectors).all(1)
        if is_bad.any():
            raise UserError(f"{where(int(is_bad.argmax()))}: {VECTOR!r} is not finite")
        return KeyRows(keys, vectors, where)


def _namer(path: str, records: Sequence[StoredRecord]) -> Callable[[int], str]:
    return lambda index: f"{path}: record {records[index].number}"
