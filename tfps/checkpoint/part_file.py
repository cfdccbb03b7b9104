"""A file of a checkpoint, as its commit marker describes it."""

import dataclasses
import posixpath
import re

import tensorflow as tf

from tfps.checkpoint.damage import Damage
from tfps.data import checksum

PREFIX = "parameters"
_INDEX = f"{PREFIX}.index"
_FILE = re.compile(rf"{PREFIX}\.(index|data-\d{{5}}-of-\d{{5}})")


@dataclasses.dataclass(frozen=True)
class PartFile:
    """A file that the ps wrote, or the index that joins them.

    The index holds a checksum of every slice of the others, which TensorFlow compares as it reads
    them. So a checksum of the small index is enough for all: none of the values is read twice.

    Attributes:
        name: Its name in the checkpoint's directory.
        size: Bytes.
        crc32c: Checksum of the index; None for files of values.
    """

    name: str
    size: int
    crc32c: str | None

    @classmethod
    def all_in(cls, directory: str) -> tuple["PartFile", ...]:
        """The files of a checkpoint that was just written.

        Raises:
            tf.errors.OpError: If they cannot be read.
        """
        names = sorted(name for name in tf.io.gfile.listdir(directory) if _FILE.fullmatch(name))
        return tuple(cls._of(posixpath.join(directory, name)) for name in names)

    @classmethod
    def _of(cls, path: str) -> "PartFile":
        name = posixpath.basename(path)
        crc32c = checksum.of_file(path) if name == _INDEX else None
        return cls(name, tf.io.gfile.stat(path).length, crc32c)

    def check(self, directory: str) -> None:
        """Holds what is on disk against the description, without reading values.

        Raises:
            Damage: If it differs.
            tf.errors.OpError: If the storage does not answer.
        """
        path = posixpath.join(directory, self.name)
        try:
            size = tf.io.gfile.stat(path).length
        except tf.errors.NotFoundError:
            raise Damage(f"{self.name} is missing") from None
        if size != self.size:
            raise Damage(f"{self.name} has {size:,} bytes instead of {self.size:,}")
        if self.crc32c is not None and checksum.of_file(path) != self.crc32c:
            raise Damage(f"{self.name} was altered: its checksum differs")
