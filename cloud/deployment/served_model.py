"""What is known of an exported model before a server loads it; no TensorFlow is needed."""

import dataclasses
import hashlib
import math
import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from cloud.deployment import model_files
from cloud.deployment.model_files import ModelFile
from tfps import byte_size
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.export import exported_files
from tfps.export.exported_files import (
    GRAPH_FILE,
    SCHEMA_FILE,
    VARIABLES_DIRECTORY,
    VARIABLES_NAME,
    WARM_UP_FILE,
)
from tfps.job_dir import JobDir
from tfps.storage.paths import is_local

_DATA = rf"{VARIABLES_DIRECTORY}/{VARIABLES_NAME}\.data-\d{{5}}-of-\d{{5}}"
_MEND = "export the model again, or name another version"
_SERVER_BYTES = 512 << 20  # TensorFlow Serving itself, its threads and requests in flight
_GROWTH = 1.2  # what a model takes beyond its variables


def _check_whole(directory: str, files: Mapping[str, ModelFile], sizes: Mapping[str, int]) -> None:
    """Refuses a version that lacks a file, or has one that is cut short or of another export."""
    _check_names(directory, files, [GRAPH_FILE, *sizes])
    for name, size in sizes.items():
        if files[name].bytes != size:
            raise UserError(
                f"--model: {directory} is not whole: {name} has {files[name].bytes:,} bytes, but "
                f"{size:,} were exported. If it is being copied, wait; else {_MEND}"
            )


def _check_names(directory: str, files: Mapping[str, ModelFile], wanted: Iterable[str]) -> None:
    if missing := [name for name in wanted if name not in files]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UserError(
            f"--model: {directory} is not whole: it has no {', '.join(missing[:3])}{more}. "
            f"If it is being written, wait; else {_MEND}"
        )


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """One version of an exported model, which is whole."""

    base: str
    version: int
    versions: tuple[int, ...]  # all that are there, whole or not, ascending
    features: tuple[Feature, ...]  # the inputs; vocabularies are known by their sizes
    variables_bytes: int
    has_warm_up: bool
    digest: str = ""  # hexadecimal; tells a model in gs:// from any other, whatever its path

    @property
    def path(self) -> str:
        return posixpath.join(self.base, str(self.version))

    @classmethod
    def read(cls, path: str, version: int = 0) -> Self:
        """Reads what the files of a model say; version 0 is the newest."""
        model_files.check_place(path)
        base, found = _place(os.path.abspath(path) if is_local(path) else path.rstrip("/"))
        versions = tuple(_numbers(model_files.directories(base)))
        number = version or found or max(versions)
        if found and version not in (0, found):
            raise UserError(
                f"--model={path} is version {found}, but --version={version}; leave one out"
            )
        if number not in versions:
            there = ", ".join(map(str, versions))
            raise UserError(f"--version={number}: {base} has the versions {there}; name one")
        directory = posixpath.join(base, str(number))
        files = model_files.files(directory)
        _check_names(directory, files, [SCHEMA_FILE])
        where = posixpath.join(directory, SCHEMA_FILE)
        content = exported_files.decode(model_files.read(where), where)
        schema = exported_files.ExportSchema.of(content, where)
        _check_whole(directory, files, schema.sizes)
        return cls(
            base,
            number,
            versions,
            schema.features,
            variables_bytes=sum(
                each.bytes for name, each in files.items() if re.fullmatch(_DATA, name)
            ),
            has_warm_up=WARM_UP_FILE in files,
            digest=digest_of(files),
        )


def _place(path: str) -> tuple[str, int]:
    """The directory of all versions, and the number of the one that a path names, else 0."""
    if _numbers([posixpath.basename(path)]) and GRAPH_FILE in model_files.files(path):
        return posixpath.dirname(path), int(posixpath.basename(path))
    for base in (path, JobDir(path).export):
        if _numbers(model_files.directories(base)):
            return base, 0
    if _numbers([posixpath.basename(path)]) and VARIABLES_DIRECTORY in model_files.directories(
        path
    ):
        return posixpath.dirname(path), int(posixpath.basename(path))  # without its graph
    raise UserError(
        f"--model={path} has no numbered directory with an exported model, nor has its export; "
        "name the JOB_DIR of a job that has ended, its export, or one version of it"
    )


def _numbers(names: Sequence[str]) -> list[int]:
    """Names as TensorFlow Serving takes them for versions."""
    return sorted(int(name) for name in names if re.fullmatch(r"0|[1-9]\d{0,17}", name))


def digest_of(files: Mapping[str, model_files.ModelFile]) -> str:
    """SHA-256 of the names, sizes and checksums of files, in hexadecimal."""
    text = "".join(f"{name}\0{each.bytes}\0{each.crc32c}\n" for name, each in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def memory_needed(model: ServedModel, versions: int = 1) -> int:
    """Bytes for a server of `versions` at once: it loads a new one before it lets one go."""
    return _SERVER_BYTES + math.ceil(model.variables_bytes * _GROWTH) * versions


def check_memory(model: ServedModel, held: int, where: str, versions: int = 1) -> None:
    """Refuses servers of `held` bytes into which a model does not fit; `where` is their flag."""
    needed = memory_needed(model, versions)
    if needed > held:
        many = f"{versions} versions of " if versions > 1 else ""
        raise UserError(
            f"{where}: {many}{model.path} with variables of "
            f"{byte_size.show(model.variables_bytes)} need some {byte_size.show(needed)} of "
            f"memory, but a server has {byte_size.show(held)}; take a larger one, or export the "
            "model with --train.export_dtype=bfloat16 or int8"
        )
