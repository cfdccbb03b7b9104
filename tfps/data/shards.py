"""The shards of a dataset: what a manifest says of their files, and whether it is true.

On gs:// one listing gives size, checksum and generation of all shards. A generation changes
whenever an object is written, also with the same content.
"""

import dataclasses
import logging
import posixpath
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data.tfrecord import Compression
from tfps.errors import RunError, UserError
from tfps.storage import files
from tfps.storage.paths import is_cloud, is_file_name

HINT = "run trainer.prepare again"
_log = logging.getLogger(__name__)
STRIDE = 1024
_ITEM = np.dtype("<i8")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One TFRecord file."""

    file: str
    records: int
    bytes: int
    crc32c: str  # of the whole file, 8 hexadecimal digits
    compression: Compression = ""
    generation: int = 0  # of the object on gs://, new whenever it is written; 0 for a file

    def __post_init__(self) -> None:
        _check_file_name(self.file)


@dataclasses.dataclass(frozen=True)
class IndexFile:
    """The file with the index of all shards."""

    file: str
    stride: int
    crc32c: str

    def __post_init__(self) -> None:
        _check_file_name(self.file)


def _check_file_name(name: str) -> None:
    if not is_file_name(name):
        raise ValueError(f"{name!r} is not the name of a file")


def check_files(
    directory: str, shards: Sequence[Shard], where: str, may_be_cut: bool = False
) -> tuple[Shard, ...]:
    """Compares the shards' files with the manifest; gives the shards with today's generations.

    A copy of a dataset has other generations than its manifest says, so checksums are compared.
    With `may_be_cut`, a file may have fewer bytes than the manifest says.
    """
    found = _look(directory, shards)
    problems = []
    for shard, seen in zip(shards, found, strict=True):
        if seen is None:
            problems.append(f"shard {shard.file} is missing")
        elif may_be_cut and seen.bytes < shard.bytes:
            _log.warning(
                "%s: shard %s is cut off: it has %d bytes, but the manifest says %d",
                where,
                shard.file,
                seen.bytes,
                shard.bytes,
            )
        elif seen.bytes != shard.bytes:
            problems.append(
                f"shard {shard.file} has {seen.bytes} bytes, but the manifest says {shard.bytes}"
            )
        elif seen.crc32c != shard.crc32c:
            problems.append(
                f"shard {shard.file} has the crc32c {seen.crc32c}, but the manifest says "
                f"{shard.crc32c}"
            )
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise UserError(
            f"{where}: {'; '.join(problems[:3])}{more}; copy the dataset again or {HINT}"
        )
    return tuple(shard for shard in found if shard)


def with_generations(directory: str, shards: Sequence[Shard]) -> tuple[Shard, ...]:
    """The shards with the generations that their objects have now; 0 for local files."""
    if not is_cloud(directory):
        return tuple(shards)
    found = zip(shards, _look(directory, shards), strict=True)
    return tuple(
        dataclasses.replace(shard, generation=seen.generation if seen else 0)
        for shard, seen in found
    )


def refuse_replaced(directory: str, shards: Sequence[Shard]) -> None:
    """Ends a run when a shard on gs:// has another generation than at its start."""
    if not is_cloud(directory):
        return
    for shard, seen in zip(shards, _look(directory, shards), strict=True):
        if seen is None or seen.generation != shard.generation:
            path = posixpath.join(directory, shard.file)
            now = f"its generation is {seen.generation}" if seen else "it is gone"
            raise RunError(
                f"{path} was replaced while it was trained on: its generation was "
                f"{shard.generation}, now {now}. What was trained since the last checkpoint is "
                "given up; put the shard back and rerun the same command to resume from there, "
                "or train the new data with another --job_dir"
            )


def _look(directory: str, shards: Sequence[Shard]) -> list[Shard | None]:
    """The shards as their files are; None for one that is missing."""
    if not is_cloud(directory):
        # On a network's file system a look at one file takes its time: many at once.
        with ThreadPoolExecutor(max_workers=16) as pool:
            return list(pool.map(lambda shard: _look_at_file(directory, shard), shards))
    # Loaded here: Google's client takes a quarter of a second, which local runs are spared.
    from tfps.storage import objects

    listed = objects.list_objects(directory)
    return [
        dataclasses.replace(shard, **dataclasses.asdict(listed[shard.file]))
        if shard.file in listed
        else None
        for shard in shards
    ]


def _look_at_file(directory: str, shard: Shard) -> Shard | None:
    try:
        size = tf.io.gfile.stat(posixpath.join(directory, shard.file)).length
    except tf.errors.NotFoundError:
        return None
    return dataclasses.replace(shard, bytes=size, generation=0)


@dataclasses.dataclass(frozen=True, eq=False)
class RecordIndex:
    """Byte offsets of some records of every shard."""

    stride: int
    # Per shard `[ceil(records / stride)]`, of records 0, stride, …; `[0]` for a compressed one.
    offsets: tuple[npt.NDArray[np.int64], ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordIndex):
            return NotImplemented
        return self.stride == other.stride and list(map(bytes, self.offsets)) == list(
            map(bytes, other.offsets)
        )

    def encode(self) -> bytes:
        return b"".join(offsets.astype(_ITEM).tobytes() for offsets in self.offsets)

    def entries_of(self, shard: int, first: int, end: int) -> tuple[tuple[int, ...], int, int]:
        """For a reader: byte offsets, the record of the first, and the records between two."""
        entries = self.offsets[shard]
        if not len(entries):
            return (0,), 0, 1
        begin = first // self.stride
        found = entries[begin : (end - 1) // self.stride + 1]
        return tuple(found.tolist()), begin * self.stride, self.stride

    @classmethod
    def decode(cls, content: bytes, stride: int, entries: Sequence[int]) -> "RecordIndex":
        if len(content) != sum(entries) * _ITEM.itemsize:
            raise ValueError(f"it has {len(content)} bytes, not {sum(entries) * _ITEM.itemsize}")
        flat = np.frombuffer(content, _ITEM).astype(np.int64)
        return cls(stride, tuple(np.split(flat, np.cumsum(entries)[:-1])) if entries else ())


def read_index(
    index: IndexFile, directory: str, where: str, shards: Sequence[Shard]
) -> RecordIndex:
    """Reads the index of a dataset, and holds it against its checksum and the shards."""
    file = index.file
    try:
        with tf.io.gfile.GFile(posixpath.join(directory, file), "rb") as opened:
            encoded = opened.read()
    except tf.errors.NotFoundError:
        raise UserError(f"{where}: the index {file} is missing; {HINT}") from None
    found = files.checksum_of(encoded)
    if found != index.crc32c:
        raise UserError(
            f"{where}: the index {file} is not the one that manifest.json was written with (its "
            f"crc32c is {found}, not {index.crc32c}); {HINT}"
        )
    counts = [entries(shard.records, index.stride, shard.compression) for shard in shards]
    try:
        return RecordIndex.decode(encoded, index.stride, counts)
    except ValueError as error:
        raise UserError(
            f"{where}: the index {file} does not fit the shards of manifest.json ({error}); {HINT}"
        ) from None


def entries(records: int, stride: int, compression: str) -> int:
    """How many entries a shard has."""
    return 0 if compression else -(-records // stride)
