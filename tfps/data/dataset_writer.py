"""Writes a dataset: TFRecord shards, then the index and manifest that make them one."""

import contextlib
import itertools
import json
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data import manifest
from tfps.data.examples import Counts
from tfps.data.manifest import Manifest
from tfps.data.schema import Schema
from tfps.data.shards import STRIDE, RecordIndex, Shard
from tfps.data.tfrecord import frame
from tfps.errors import UserError
from tfps.storage import files
from tfps.storage.failures import StorageError, of_named
from tfps.storage.paths import is_file_name

FILE = "replacing.json"
_DEALT_AT_ONCE = 4096  # records
_MOST_SHARDS = 100_000  # their numbers have five digits
# Some records of one shard as they stand in a file, and the size of each, with its frame.
Frames = tuple[bytes, npt.NDArray[np.int64]]


def free_prefix(directory: str, name: str, files: Callable[[str], Iterable[str]]) -> str:
    """The name, or the first of `NAME.2`, `NAME.3`, … whose files are not in the directory yet."""
    taken = set(tf.io.gfile.listdir(directory))
    prefixes = (name if number == 1 else f"{name}.{number}" for number in itertools.count(1))
    return next(prefix for prefix in prefixes if taken.isdisjoint(files(prefix)))


def begin(directory: str, names: Sequence[str]) -> None:
    """Lists files before they are made, or are no part of the dataset any more."""
    listed = sorted({*_listed(directory), *names})
    text = json.dumps({"files": listed}, indent=1) + "\n"
    files.replace(posixpath.join(directory, FILE), text, "partial")


def settle(directory: str) -> None:
    """Deletes those of the listed files that are no part of the dataset, then the list."""
    listed = _listed(directory)
    stated = manifest.named_files(directory) if listed else ()
    for name in (*sorted(set(listed) - set(stated)), *([FILE] if listed else [])):
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(posixpath.join(directory, name))


def _listed(directory: str) -> list[str]:
    """Names of the listed files; none without a list."""
    path = posixpath.join(directory, FILE)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = json.loads(file.read())
    except tf.errors.NotFoundError:
        return []
    except ValueError:
        content = None
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, list) or not files or not all(map(is_file_name, files)):
        raise UserError(
            f"{path} is no list of files in its directory, as it is kept while a dataset is "
            "written; delete it"
        )
    return files


def deal(framed: Sequence[bytes], shards: int) -> list[Frames]:
    """Deals records to shards in turn."""
    return [
        (b"".join(some), np.fromiter(map(len, some), np.int64, len(some)))
        for some in (framed[first::shards] for first in range(min(shards, len(framed))))
    ]


def split(frames: bytes, sizes: npt.NDArray[np.int64]) -> Iterator[bytes]:
    """The records of some `Frames`, each with its frame."""
    ends = np.cumsum(sizes)
    for begin, end in zip((ends - sizes).tolist(), ends.tolist(), strict=True):
        yield frames[begin:end]


class DatasetWriter:
    """A dataset being written; as a context it removes its shards when it fails.

    A dataset that is in the directory stays until the new one is whole.
    """

    def __init__(
        self,
        directory: str,
        name: str,
        schema: Schema,
        shards: Mapping[str, tf.io.gfile.GFile],
    ) -> None:
        self.files = list(shards)
        self.directory = directory
        self._name = name
        self._schema = schema
        self._files = list(shards.values())
        self._records = [0] * len(shards)
        self._bytes = [0] * len(shards)
        self._offsets: list[list[int]] = [[] for _ in shards]
        self._done = False

    @classmethod
    def open(
        cls, directory: str, name: str, shards: int, schema: Schema, overwrite: bool = False
    ) -> Self:
        """Makes the directory and opens all shards; the name is the prefix of theirs."""
        manifest.check_name(name)
        if not 1 <= shards <= _MOST_SHARDS:
            raise UserError(f"shards={shards} must be from 1 to {_MOST_SHARDS:,}")
        try:
            replaced = _replaced(directory, overwrite)
            tf.io.gfile.makedirs(directory)
            settle(directory)
            prefix = free_prefix(directory, name, lambda x: _names(x, shards))
            *names, index = _names(prefix, shards)
            begin(directory, [*replaced, *names, index])
            opened = {
                file: tf.io.gfile.GFile(posixpath.join(directory, file), "wb") for file in names
            }
            for each in opened.values():
                each.write(b"")  # a file is made by the first write
        except (tf.errors.OpError, StorageError) as error:
            raise of_named(error, f"--output={directory}", "written") from None
        return cls(directory, prefix, schema, opened)

    @property
    def records(self) -> int:
        return sum(self._records)

    def write(self, shard: int, record: bytes) -> None:
        framed = frame(record)
        self.write_frames(shard, framed, np.array([len(framed)]))

    def write_frames(self, shard: int, frames: bytes, sizes: npt.NDArray[np.int64]) -> None:
        """Adds framed records to a shard; `sizes` are the bytes of each, its frame included."""
        try:
            self._files[shard].write(frames)
        except (tf.errors.OpError, StorageError) as error:
            raise of_named(error, f"--output={self.directory}", "written") from None
        first = -self._records[shard] % STRIDE  # of these records, the first one with an entry
        if first < len(sizes):
            offsets = self._bytes[shard] + np.cumsum(sizes) - sizes
            self._offsets[shard].extend(offsets[first::STRIDE].tolist())
        self._records[shard] += len(sizes)
        self._bytes[shard] += len(frames)

    def write_in_turn(self, dealt: Sequence[Frames]) -> None:
        """Adds records that are dealt to the shards, from the shard on whose turn it is."""
        shards = len(self._files)
        for turn, (frames, sizes) in enumerate(dealt, self.records):
            self.write_frames(turn % shards, frames, sizes)

    def write_all_in_turn(self, framed: Iterable[bytes]) -> None:
        """Adds all records of a stream, dealt to the shards in turn."""
        stream = iter(framed)
        while some := list(itertools.islice(stream, _DEALT_AT_ONCE)):
            self.write_in_turn(deal(some, len(self._files)))

    def finish(
        self,
        rejected_rows: int = 0,
        best_auc: float | None = None,
        counts: Counts | None = None,
        collected: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """Closes the shards and writes the manifest; counts are None where nobody counted."""
        try:
            for opened in self._files:
                opened.close()
            written = Manifest(
                name=self._name,
                features=[feature.schema() for feature in self._schema.features],
                labels=[label.schema() for label in self._schema.labels],
                shards=tuple(map(self._shard, self.files, self._records)),
                index=RecordIndex(
                    STRIDE, tuple(np.array(each, np.int64) for each in self._offsets)
                ),
                rejected_rows=rejected_rows,
                best_auc=best_auc,
                counts=dict(counts or {}),
                collected=collected or {},
                directory=self.directory,
            )
            files.sync([*map(self._path, self.files), self.directory])
            manifest.write(written)
            self._done = True
            settle(self.directory)
        except (tf.errors.OpError, StorageError) as error:
            raise of_named(error, f"--output={self.directory}", "written") from None
        return written

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._done:
            return
        try:
            for opened in self._files:
                opened.close()
            settle(self.directory)
        except (tf.errors.OpError, StorageError) as failure:
            raise of_named(failure, f"--output={self.directory}", "written") from error

    def _path(self, file: str) -> str:
        return posixpath.join(self.directory, file)

    def _shard(self, file: str, records: int) -> Shard:
        path = self._path(file)
        size = tf.io.gfile.stat(path).length
        return Shard(file, records, size, files.checksum_of_file(path))


def _replaced(directory: str, overwrite: bool) -> tuple[str, ...]:
    """Files of the dataset that is in the directory."""
    if not overwrite and manifest.is_in(directory):
        raise UserError(
            f"--output={directory} already holds a dataset; name another directory, or replace it "
            "with --overwrite"
        )
    return manifest.files_to_replace(directory)


def _names(prefix: str, shards: int) -> list[str]:
    names = [f"{prefix}-{index:05d}-of-{shards:05d}.tfrecord" for index in range(shards)]
    return [*names, manifest.index_file(prefix)]
