"""What is known of an exported model before a server loads it; no TensorFlow is needed."""

import dataclasses
import hashlib
import os
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Self

from cloud.deployment import model_files, whole_model
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.export import exported_files
from tfps.export.exported_files import (
    EXPORT_DIRECTORY,
    GRAPH_FILE,
    SCHEMA_FILE,
    VARIABLES_DIRECTORY,
    WARM_UP_FILE,
)
from tfps.storage.paths import is_local


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """One version of an exported model, which is whole.

    Attributes:
        versions: Numbers of all versions there, whole or not, in their order.
        features: The model's inputs; of vocabularies it knows the sizes.
        has_warm_up: Whether it has requests with which a server warms it up.
        digest: Tells a model in `gs://` from any other, whatever its path; hexadecimal.
    """

    base: str
    version: int
    versions: tuple[int, ...]
    features: tuple[Feature, ...]
    labels: tuple[Feature, ...]
    signatures: Mapping[str, str]
    variables_bytes: int
    has_warm_up: bool
    digest: str = ""

    @property
    def path(self) -> str:
        """Directory of this version."""
        return posixpath.join(self.base, str(self.version))

    @classmethod
    def read(cls, path: str, version: int = 0) -> Self:
        """Reads what the files of a model say.

        Args:
            version: Which of several; 0 for the newest one.
        """
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
        whole_model.check_there(directory, files)
        where = posixpath.join(directory, SCHEMA_FILE)
        content = exported_files.decode(model_files.read(where), where)
        schema = exported_files.ExportSchema.of(content, where)
        whole_model.check_sizes(directory, files, schema.sizes)
        return cls(
            base,
            number,
            versions,
            schema.features,
            schema.labels,
            schema.signatures,
            variables_bytes=sum(
                each.bytes for name, each in files.items() if re.fullmatch(whole_model.DATA, name)
            ),
            has_warm_up=WARM_UP_FILE in files,
            digest=digest_of(files),
        )


def _place(path: str) -> tuple[str, int]:
    """The directory of all versions, and the number of the one that a path names, else 0."""
    if _numbers([posixpath.basename(path)]) and GRAPH_FILE in model_files.files(path):
        return posixpath.dirname(path), int(posixpath.basename(path))
    for base in (path, posixpath.join(path, EXPORT_DIRECTORY)):
        if _numbers(model_files.directories(base)):
            return base, 0
    if _numbers([posixpath.basename(path)]) and VARIABLES_DIRECTORY in model_files.directories(
        path
    ):
        return posixpath.dirname(path), int(posixpath.basename(path))  # without its graph
    raise UserError(
        f"--model={path} has no numbered directory with an exported model, nor has its "
        f"{EXPORT_DIRECTORY}; name the JOB_DIR of a job that has ended, its export, or one version "
        "of it"
    )


def _numbers(names: Sequence[str]) -> list[int]:
    """Names as TensorFlow Serving takes them for versions."""
    return sorted(int(name) for name in names if re.fullmatch(r"0|[1-9]\d{0,17}", name))


def digest_of(files: Mapping[str, model_files.ModelFile]) -> str:
    """What tells these files from any other's: their names, sizes and checksums.

    Returns:
        64 hexadecimal digits.
    """
    text = "".join(f"{name}\0{each.bytes}\0{each.crc32c}\n" for name, each in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()
