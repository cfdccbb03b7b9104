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
      "index": {                        where every 1,024th record begins (tfps.data.record_index)
        "file": "criteo.index", "stride": 1024, "crc32c": "4d3c2b1a"
      },
      "rejected_rows": 0,               bad rows left out by --max_bad_rows
      "best_auc": 0.83,                 of the planted signal; null for data that was not generated
      "origin": "written"               the shards with it; "found" where it was written beside them
    }
"""

import contextlib
import dataclasses
import functools
import json
import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.data import record_index
from tfps.data.record_index import RecordIndex
from tfps.data.shards import COMPRESSIONS, Shard, checked, with_generations
from tfps.errors import UserError
from tfps.storage import atomic_file, checksum, files
from tfps.storage.failures import StorageError
from tfps.storage.paths import is_file_name

FILE = "manifest.json"
FORMAT = 3
WRITTEN, FOUND = "written", "found"
_MEND = "run trainer.prepare again"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a dataset holds.

    Attributes:
        name: Prefix of the shards' file names.
        features: `Feature.schema()` of every input.
        labels: `Feature.schema()` of every label.
        shards: The files, in order.
        index: Where their records begin.
        rejected_rows: Bad rows that were left out.
        best_auc: The AUC that a planted signal allows, or None.
        origin: Of the shards: `WRITTEN` with the manifest, or `FOUND` where it was written.
        directory: Where the dataset is; not part of the file.
    """

    name: str
    features: list[dict[str, Any]]
    labels: list[dict[str, Any]]
    shards: tuple[Shard, ...]
    index: RecordIndex
    rejected_rows: int = 0
    best_auc: float | None = None
    origin: str = WRITTEN
    directory: str = ""

    @functools.cached_property  # asked for with each lease
    def records(self) -> int:
        """Records of all shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.bytes for shard in self.shards)

    def path_of(self, shard: Shard) -> str:
        """Path of a shard's file, local or `gs://`."""
        return posixpath.join(self.directory, shard.file)


def check_name(name: str) -> None:
    """Refuses a dataset's name that its files' names could not begin with.

    Raises:
        UserError: If it is none.
    """
    if not _NAME.fullmatch(name):
        raise UserError(f"--name={name}: use letters, digits, '-', '_' and '.' only")


def index_file(name: str) -> str:
    """Name of the index's file of a dataset of that name."""
    return f"{name}.index"


def write(manifest: Manifest) -> None:
    """Writes index and manifest into their directory; the last act of making a dataset."""
    index = manifest.index.encode()
    file = index_file(manifest.name)
    content = {
        "format": FORMAT,
        "name": manifest.name,
        "features": manifest.features,
        "labels": manifest.labels,
        "shards": [
            dataclasses.asdict(shard)
            for shard in with_generations(manifest.directory, manifest.shards)
        ],
        "index": {
            "file": file,
            "stride": manifest.index.stride,
            "crc32c": checksum.of_bytes(index),
        },
        "rejected_rows": manifest.rejected_rows,
        "best_auc": manifest.best_auc,
        "origin": manifest.origin,
    }
    atomic_file.write(posixpath.join(manifest.directory, file), index, "partial")
    text = json.dumps(content, indent=2) + "\n"
    atomic_file.write(posixpath.join(manifest.directory, FILE), text, "partial")


def read(directory: str, flag: str = "", may_be_cut: bool = False) -> Manifest:
    """Reads a dataset's manifest and looks whether its shards are there.

    Args:
        directory: Of the dataset, local or `gs://`.
        flag: What named the directory, for messages; for example `--train_data`.
        may_be_cut: Whether a shard may have fewer bytes than the manifest says.

    Returns:
        The manifest, all its shards present and of their size; on gs:// also of their content,
        with the generations that they have now.

    Raises:
        UserError: If the directory is no dataset, or a shard is missing or another than the
            manifest says.
        StorageError: If the storage does not answer.
    """
    where = f"{flag}={directory}" if flag else directory
    try:
        text = _text(directory, where)
        manifest = _decode(text, where, directory)
        shards = checked(directory, manifest.shards, where, may_be_cut)
    except StorageError as error:
        if error.may_pass:
            raise
        raise UserError(f"{where} cannot be read: {error}") from None
    except tf.errors.OpError as error:
        raise UserError(f"{where} cannot be read: {error.message}") from None
    return dataclasses.replace(manifest, shards=shards)


def named_files(directory: str) -> tuple[str, ...]:
    """Names of shards and index of the dataset in a directory, none if there is no dataset.

    Raises:
        UserError: If the manifest cannot be understood, and with it these names.
        tf.errors.OpError: If the storage does not answer.
    """
    get = _stored(directory)
    return _files(get, directory) if get else ()


def files_to_replace(directory: str) -> tuple[str, ...]:
    """As `named_files`, for a dataset that is to be replaced.

    Raises:
        UserError: If the manifest cannot be understood, or the shards were made by something else.
        tf.errors.OpError: If the storage does not answer.
    """
    get = _stored(directory)
    if get is None:
        return ()
    if get("origin", str) != WRITTEN:
        raise UserError(
            f"{directory} holds TFRecord files that were there before their {FILE}; delete them "
            "yourself, or name another directory"
        )
    return _files(get, directory)


def verify(manifest: Manifest, shard: Shard) -> None:
    """Reads a shard and compares its checksum.

    Raises:
        UserError: If the file is missing, cannot be read, or is not what was written.
    """
    path = manifest.path_of(shard)
    try:
        found = checksum.of_file(path)
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from None
    if found != shard.crc32c:
        raise UserError(
            f"{path} is corrupt: its crc32c is {found}, but the manifest says {shard.crc32c}; "
            f"copy it again or {_MEND}"
        )


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


def _stored(directory: str) -> Callable[[str, Any], Any] | None:
    """A getter of what the manifest in a directory holds; None only where there is none."""
    try:
        with tf.io.gfile.GFile(posixpath.join(directory, FILE), "rb") as file:
            text = file.read().decode("utf-8", errors="replace")
    except tf.errors.NotFoundError:
        return None
    return _content(text, f"{directory}: {FILE}")


def _files(get: Callable[[str, Any], Any], directory: str) -> tuple[str, ...]:
    where = f"{directory}: {FILE}"
    shards = [_shard(shard, f"{where}: shards").file for shard in get("shards", list)]
    return (*shards, _file_name(_getter(get("index", dict), f"{where}: index"), f"{where}: index"))


def _file_name(get: Callable[[str, Any], Any], where: str) -> str:
    """The name of a file in the dataset's directory."""
    name = get("file", str)
    if not is_file_name(name):
        raise UserError(f"{where}: {name!r} is not the name of a file; {_MEND}")
    return str(name)


def _decode(text: str, where: str, directory: str) -> Manifest:
    path = f"{where}: {FILE}"
    get = _content(text, path)
    shards = tuple(_shard(shard, f"{path}: shards") for shard in get("shards", list))
    return Manifest(
        name=get("name", str),
        features=[_schema(schema, f"{path}: features") for schema in get("features", list)],
        labels=[_schema(schema, f"{path}: labels") for schema in get("labels", list)],
        shards=shards,
        index=_index(get("index", dict), shards, where, directory),
        rejected_rows=get("rejected_rows", int),
        best_auc=get("best_auc", float | None),
        origin=get("origin", str),
        directory=directory,
    )


def _content(text: str, where: str) -> Callable[[str, Any], Any]:
    """A getter of what the manifest's text holds."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is not JSON ({error}); {_MEND}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        raise UserError(f"{where} has format {found!r}, but this version reads {FORMAT}; {_MEND}")
    return _getter(content, where)


def _getter(content: Any, where: str) -> Callable[[str, Any], Any]:
    """A function of key and type that gives the value or says what is wrong with it."""

    def get(key: str, kind: Any) -> Any:
        value = content.get(key) if isinstance(content, dict) else None
        if not isinstance(value, kind) or isinstance(value, bool):
            name = getattr(kind, "__name__", kind)
            raise UserError(f"{where}: {key!r} is {value!r}, not a {name}; {_MEND}")
        return value

    return get


def _schema(content: Any, where: str) -> dict[str, Any]:
    get = _getter(content, where)
    return {
        "name": get("name", str),
        "dtype": get("dtype", str),
        "shape": get("shape", list),
        "vocabulary_size": get("vocabulary_size", int),
        "vocabulary_crc32": get("vocabulary_crc32", int),
    }


def _shard(content: Any, where: str) -> Shard:
    get = _getter(content, where)
    file = _file_name(get, where)
    if get("compression", str) not in COMPRESSIONS:
        raise UserError(
            f"{where}: 'compression' is {content['compression']!r}, not one of "
            f"{', '.join(map(repr, COMPRESSIONS))}; {_MEND}"
        )
    return Shard(
        file,
        get("records", int),
        get("bytes", int),
        get("crc32c", str),
        content["compression"],
        get("generation", int),
    )


def _index(content: Any, shards: Sequence[Shard], where: str, directory: str) -> RecordIndex:
    """Reads the index and holds it against its checksum and the shards' numbers of records."""
    get = _getter(content, f"{where}: {FILE}: index")
    file, stride = _file_name(get, f"{where}: {FILE}: index"), get("stride", int)
    try:
        with tf.io.gfile.GFile(posixpath.join(directory, file), "rb") as opened:
            encoded = opened.read()
    except tf.errors.NotFoundError:
        raise UserError(f"{where}: the index {file} is missing; {_MEND}") from None
    found = checksum.of_bytes(encoded)
    if found != get("crc32c", str):
        raise UserError(
            f"{where}: the index {file} is not the one that {FILE} was written with (its crc32c is "
            f"{found}, not {content['crc32c']}); {_MEND}"
        )
    counts = [record_index.entries(shard.records, stride, shard.compression) for shard in shards]
    try:
        return RecordIndex.decode(encoded, stride, counts)
    except ValueError as error:
        raise UserError(
            f"{where}: the index {file} does not fit the shards of {FILE} ({error}); {_MEND}"
        ) from None
