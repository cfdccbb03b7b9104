"""A file of a checkpoint, as its commit marker describes it."""

import dataclasses
import posixpath
import re

from tfps.checkpoint.damage import Damage
from tfps.storage import checksum, files
from tfps.storage.files import StorageError

PREFIX = "parameters"
_INDEX = f"{PREFIX}.index"
_VALUES = re.compile(rf"{PREFIX}\.data-\d{{5}}-of-(\d{{5}})")


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
            StorageError: If they cannot be read, or one of them is not there.
        """
        found = [(name, _VALUES.fullmatch(name)) for name in files.names(directory)]
        values = [(name, int(match[1])) for name, match in found if match]
        names = [_INDEX, *(name for name, _ in values)]
        if any(count != len(values) for _, count in values):
            raise StorageError(
                f"{directory} has {len(values)} files of values instead of {values[0][1]}; when "
                "the storage answers again, the same command goes on from the last checkpoint",
                may_pass=True,
            )
        return tuple(cls._of(posixpath.join(directory, name)) for name in sorted(names))

    @classmethod
    def _of(cls, path: str) -> "PartFile":
        try:
            crc32c = checksum.of_bytes(files.read(path)) if path.endswith(_INDEX) else None
            return cls(posixpath.basename(path), files.size(path), crc32c)
        except FileNotFoundError as error:
            raise files.explain(error, "read", path) from None

    def check(self, directory: str) -> None:
        """Holds what is on disk against the description, without reading values.

        Raises:
            Damage: If it differs.
            StorageError: If the storage does not answer.
        """
        path = posixpath.join(directory, self.name)
        try:
            size = files.size(path)
            index = files.read(path) if self.crc32c is not None else b""
        except FileNotFoundError:
            raise Damage(f"{self.name} is missing") from None
        if size != self.size:
            raise Damage(f"{self.name} has {size:,} bytes instead of {self.size:,}")
        if self.crc32c is not None and checksum.of_bytes(index) != self.crc32c:
            raise Damage(f"{self.name} was altered: its checksum differs")
