"""The shards of a dataset: what a manifest says of their files, and whether it is so.

On gs:// one listing tells size, checksum and generation of all shards. A generation changes
whenever an object is written, also with the same content: while it stays, so does the content.
"""

import dataclasses
import logging
import posixpath
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from tfps.data.json_fields import MEND, JsonFields
from tfps.errors import RunError, UserError
from tfps.storage.paths import is_cloud

COMPRESSIONS = ("", "GZIP", "ZLIB")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One TFRecord file.

    Attributes:
        crc32c: Checksum of the whole file, 8 hexadecimal digits.
        generation: The object's on gs://, which changes when it is written again; 0 for a file.
    """

    file: str
    records: int
    bytes: int
    crc32c: str
    compression: str = ""
    generation: int = 0

    @classmethod
    def from_json(cls, fields: JsonFields) -> "Shard":
        """Reads what `dataclasses.asdict` gave."""
        compression = fields.get("compression", str)
        if compression not in COMPRESSIONS:
            raise UserError(
                f"{fields.where}: 'compression' is {compression!r}, not one of "
                f"{', '.join(map(repr, COMPRESSIONS))}; {MEND}"
            )
        return cls(
            fields.file(),
            fields.get("records", int),
            fields.get("bytes", int),
            fields.get("crc32c", str),
            compression,
            fields.get("generation", int),
        )


_log = logging.getLogger(__name__)


def check_files(
    directory: str, shards: Sequence[Shard], where: str, may_be_cut: bool = False
) -> tuple[Shard, ...]:
    """Holds the shards' files against the manifest.

    Args:
        may_be_cut: Whether a file may have fewer bytes than the manifest says.

    Returns:
        The shards with the generations that they have now; 0 for local files. A copy of a dataset
        has others than its manifest says, so checksums are compared, not generations.
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
            f"{where}: {'; '.join(problems[:3])}{more}; copy the dataset again or {MEND}"
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
    """Ends a run when a shard has another generation than at its start.

    Args:
        directory: Of the dataset; local files have no generations and are not looked at.
    """
    if not is_cloud(directory):
        return
    for shard, seen in zip(shards, _look(directory, shards), strict=True):
        if seen is None or seen.generation != shard.generation:
            path = posixpath.join(directory, shard.file)
            now = f"its generation is {seen.generation}" if seen else "it is gone"
            raise RunError(
                f"{path} was replaced while it was trained on: its generation was "
                f"{shard.generation}, now {now}. What was trained since the last checkpoint is "
                "given up; put the shard back and run the same command to go on from there, or "
                "train the new data with another --job_dir"
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
