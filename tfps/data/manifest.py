"""The file that makes a directory of shards a dataset.

`manifest.json`, written after the last shard:

    {
      "format": 3,
      "name": "criteo",                 prefix of the shards' file names
      "features": [                     what every record holds
        {"name": "integers", "dtype": "float32", "shape": [13],
         "vocabulary_size": 0, "vocabulary_crc32": 0}, ...
      ],
      "labels": [                       what else every record holds
        {"name": "label", "dtype": "int64", "shape": [],
         "vocabulary_size": 2, "vocabulary_crc32": 0}, ...
      ],
      "shards": [                       TFRecord files in this directory
        {"file": "criteo-00000-of-00008.tfrecord", "records": 62500, "bytes": 16312500,
         "crc32c": "0a1b2c3d",          checksum of the whole file, 8 hexadecimal digits
         "compression": "",             "GZIP" and "ZLIB" are read as well
         "generation": 0}, ...          of the object on gs://; 0 for a local file
      ],
      "index": {                        where every 1,024th record begins (tfps.data.shards)
        "file": "criteo.index", "stride": 1024, "crc32c": "4d3c2b1a"
      },
      "rejected_rows": 0,               bad rows left out by --max_bad_rows
      "best_auc": 0.83,                 of the planted signal; null for data that was not generated
      "origin": "written",              the shards with it; "found" where they were there before
      "counts": {                       records of all shards with what may be wrong in a feature;
        "integers": {"missing": 0, "empty": 0, "misfit": 0, "not_finite": 2, "outside": 0}, ...
      },
      "collected": {...}                where trainer.collect goes on behind it; absent of others
    }
"""

import contextlib
import dataclasses
import functools
import json
import posixpath
import re
import zlib
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import msgspec
import tensorflow as tf

from tfps.data.examples import Counts, ValueCounts
from tfps.data.feature import FeatureSchema
from tfps.data.shards import (
    HINT,
    IndexFile,
    RecordIndex,
    Shard,
    check_files,
    read_index,
    with_generations,
)
from tfps.errors import UserError
from tfps.storage import files
from tfps.storage.failures import StorageError, of_named

FILE = "manifest.json"
FORMAT = 3
WRITTEN, FOUND = "written", "found"
_T = TypeVar("_T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Content:
    """What file and manifest have in common."""

    name: str
    features: list[FeatureSchema]
    labels: list[FeatureSchema]
    shards: tuple[Shard, ...]
    rejected_rows: int
    best_auc: float | None  # that a planted signal allows
    origin: str
    counts: Mapping[str, ValueCounts]  # none where nobody counted
    collected: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _File(_Content):
    index: IndexFile


@dataclasses.dataclass(frozen=True)
class _Files:
    """What must be right of a manifest for its dataset to be replaced."""

    origin: str
    shards: tuple[Shard, ...]
    index: IndexFile

    @property
    def names(self) -> tuple[str, ...]:
        return (*(shard.file for shard in self.shards), self.index.file)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(_Content):
    """What a dataset holds."""

    index: RecordIndex
    rejected_rows: int = 0
    best_auc: float | None = None
    origin: str = WRITTEN
    counts: Counts = dataclasses.field(default_factory=dict)
    directory: str = ""  # not part of the file

    @functools.cached_property  # asked for with each lease
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """What distinguishes the dataset from others, wherever it is; JSON-ready."""
        checksums = " ".join(shard.crc32c for shard in self.shards)
        return {
            "records": self.records,
            "shards": len(self.shards),
            "checksums": zlib.crc32(checksums.encode()),
        }

    def in_whole_batches(self, size: int) -> Self:
        """The dataset less the last records of each shard that fill no batch."""
        whole = (dataclasses.replace(x, records=x.records // size * size) for x in self.shards)
        return dataclasses.replace(self, shards=tuple(whole))

    def path_of(self, shard: Shard) -> str:
        return posixpath.join(self.directory, shard.file)


def check_name(name: str) -> None:
    """Refuses a dataset's name that its files' names could not begin with."""
    if not _NAME.fullmatch(name):
        raise UserError(f"--name={name}: use letters, digits, '-', '_' and '.' only")


def index_file(name: str) -> str:
    """Name of the index's file of a dataset of that name."""
    return f"{name}.index"


def write(manifest: Manifest) -> None:
    """Writes index and manifest into their directory; the last act of making a dataset."""
    index = manifest.index.encode()
    file = index_file(manifest.name)
    shards = with_generations(manifest.directory, manifest.shards)
    stored = _File(
        **{**_content_of(manifest), "shards": shards},
        index=IndexFile(file, manifest.index.stride, files.checksum_of(index)),
    )
    content = {"format": FORMAT, **dataclasses.asdict(stored)}
    if not manifest.collected:
        del content["collected"]
    files.replace(posixpath.join(manifest.directory, file), index, "partial")
    text = json.dumps(content, indent=2) + "\n"
    files.replace(posixpath.join(manifest.directory, FILE), text, "partial")


def is_in(directory: str) -> bool:
    """Whether a directory holds a dataset that is whole."""
    return files.exists(posixpath.join(directory, FILE))


def read(directory: str, flag: str = "", may_be_cut: bool = False) -> Manifest:
    """Reads a dataset's manifest and checks that its shards are there with their sizes.

    On gs:// their checksums are compared too, and their generations are those of now. With
    `may_be_cut`, a shard may have fewer bytes than the manifest says.
    """
    where = f"{flag}={directory}" if flag else directory
    try:
        text = _text(directory, where)
        stored = _decode(text, f"{where}: {FILE}", _File)
        index = read_index(stored.index, directory, where, stored.shards)
        shards = check_files(directory, stored.shards, where, may_be_cut)
    except (StorageError, tf.errors.OpError) as error:
        raise of_named(error, where) from None
    return Manifest(**{**_content_of(stored), "shards": shards}, index=index, directory=directory)


def _content_of(held: _Content) -> dict[str, Any]:
    return {each.name: getattr(held, each.name) for each in dataclasses.fields(_Content)}


def named_files(directory: str) -> tuple[str, ...]:
    """Names of shards and index of the dataset in a directory, none if there is no dataset."""
    stored = _stored(directory)
    return stored.names if stored else ()


def files_to_replace(directory: str) -> tuple[str, ...]:
    """The files of the dataset to replace, which tfps must have written."""
    stored = _stored(directory)
    if stored is None:
        return ()
    if stored.origin != WRITTEN:
        raise UserError(
            f"{directory} holds TFRecord files that were there before their {FILE}; delete them "
            "yourself, or name another directory"
        )
    return stored.names


def _text(directory: str, where: str) -> str:
    path = posixpath.join(directory, FILE)
    with contextlib.suppress(FileNotFoundError):
        return files.read(path).decode("utf-8", errors="replace")
    if files.is_directory(directory):
        raise UserError(
            f"{where} has no {FILE}; run trainer.prepare to make a dataset of rows there, or "
            "trainer.index if it holds TFRecord files"
        )
    if files.exists(directory):
        raise UserError(f"{where} is a file; name the directory of a dataset (with {FILE})")
    if any(sign in directory for sign in "*?["):
        raise UserError(
            f"{where} is no directory of that name; a dataset is one: trainer.index makes one of "
            "the TFRecord files that a glob names"
        )
    raise UserError(f"{where} does not exist; run trainer.prepare to make a dataset there")


def _stored(directory: str) -> _Files | None:
    """What the manifest in a directory holds; None only where there is none."""
    try:
        with tf.io.gfile.GFile(posixpath.join(directory, FILE), "rb") as file:
            text = file.read().decode("utf-8", errors="replace")
    except tf.errors.NotFoundError:
        return None
    return _decode(text, f"{directory}: {FILE}", _Files)


def _decode(text: str, where: str, kind: type[_T]) -> _T:
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is not JSON ({error}); {HINT}") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise UserError(f"{where} has format {found!r}, but this version reads {FORMAT}; {HINT}")
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {error}; {HINT}") from None
