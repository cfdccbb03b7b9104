"""Where records begin in the shards of a dataset, so that a lease can start in the middle of one.

A TFRecord file has no index of its own: record n can only be found by reading the n before it. The
file beside the manifest holds one little-endian int64 for every 1,024th record of every shard, the
shards one after the other. How many a shard has follows from its number of records. Shards without
records have none, and compressed ones neither, since decompression starts at the beginning.
"""

import dataclasses
import posixpath
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfps.data.json_fields import MEND, JsonFields
from tfps.data.shards import Shard
from tfps.errors import UserError
from tfps.storage import checksum

STRIDE = 1024
_ITEM = np.dtype("<i8")


@dataclasses.dataclass(frozen=True, eq=False)
class RecordIndex:
    """Byte offsets of some records of every shard.

    Attributes:
        offsets: Per shard an int64 array `[ceil(records / stride)]`: the byte offsets of records 0,
            stride, 2 stride, …; an empty one for a shard without records or a compressed one.
    """

    stride: int
    offsets: tuple[npt.NDArray[np.int64], ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordIndex):
            return NotImplemented
        return self.stride == other.stride and list(map(bytes, self.offsets)) == list(
            map(bytes, other.offsets)
        )

    def encode(self) -> bytes:
        """The content of the index's file."""
        return b"".join(offsets.astype(_ITEM).tobytes() for offsets in self.offsets)

    def entries_of(self, shard: int, first: int, end: int) -> tuple[tuple[int, ...], int, int]:
        """What a reader of some records needs of the index, as a `RecordSource` has it.

        Args:
            end: The record after the last that is asked for.

        Returns:
            Byte offsets, the record of the first of them, and the records between two.
        """
        entries = self.offsets[shard]
        if not len(entries):
            return (0,), 0, 1
        begin = first // self.stride
        found = entries[begin : (end - 1) // self.stride + 1]
        return tuple(found.tolist()), begin * self.stride, self.stride

    @classmethod
    def decode(cls, content: bytes, stride: int, entries: Sequence[int]) -> "RecordIndex":
        """Reads what `encode` gave."""
        if len(content) != sum(entries) * _ITEM.itemsize:
            raise ValueError(f"it has {len(content)} bytes, not {sum(entries) * _ITEM.itemsize}")
        flat = np.frombuffer(content, _ITEM).astype(np.int64)
        return cls(stride, tuple(np.split(flat, np.cumsum(entries)[:-1])) if entries else ())


def read(fields: JsonFields, directory: str, where: str, shards: Sequence[Shard]) -> RecordIndex:
    """Reads the index of a dataset, and holds it against its checksum and the shards."""
    file, stride, crc32c = fields.file(), fields.get("stride", int), fields.get("crc32c", str)
    try:
        with tf.io.gfile.GFile(posixpath.join(directory, file), "rb") as opened:
            encoded = opened.read()
    except tf.errors.NotFoundError:
        raise UserError(f"{where}: the index {file} is missing; {MEND}") from None
    found = checksum.of_bytes(encoded)
    if found != crc32c:
        raise UserError(
            f"{where}: the index {file} is not the one that manifest.json was written with (its "
            f"crc32c is {found}, not {crc32c}); {MEND}"
        )
    counts = [entries(shard.records, stride, shard.compression) for shard in shards]
    try:
        return RecordIndex.decode(encoded, stride, counts)
    except ValueError as error:
        raise UserError(
            f"{where}: the index {file} does not fit the shards of manifest.json ({error}); {MEND}"
        ) from None


def entries(records: int, stride: int, compression: str) -> int:
    """How many entries a shard has."""
    return 0 if compression else -(-records // stride)
