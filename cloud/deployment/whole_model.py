"""Whether all files of an exported model are there, and as long as they were written."""

import functools
import posixpath
import re
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from cloud.deployment import messages, model_files
from cloud.deployment.messages import NUMBER, Field
from cloud.deployment.model_files import ModelFile
from tfps.errors import UserError
from tfps.export.exported_files import GRAPH_FILE, SCHEMA_FILE, VARIABLES_DIRECTORY, VARIABLES_NAME

INDEX = f"{VARIABLES_DIRECTORY}/{VARIABLES_NAME}.index"
DATA = rf"{VARIABLES_DIRECTORY}/{VARIABLES_NAME}\.data-(\d{{5}})-of-(\d{{5}})"
# The first entry of an index has an empty key: no byte of one before it, none of its own; its value
# is a header of less than 128 bytes, which is as much as a length of one byte can say.
_FIRST_KEY = b"\0\0"
_LONGEST_HEADER = 127
_MEND = "export the model again, or name another version"


def check_there(directory: str, files: Mapping[str, ModelFile]) -> None:
    """Refuses a version that lacks a file."""
    shards = [match for name in files if (match := re.fullmatch(DATA, name))]
    count = int(shards[0][2]) if shards else 1
    _check_names(directory, files, [GRAPH_FILE, SCHEMA_FILE, INDEX, *_data(count)])


def check_sizes(directory: str, files: Mapping[str, ModelFile], sizes: Mapping[str, int]) -> None:
    """Refuses a version of which a file is cut short, or was written by another export.

    Args:
        sizes: Bytes of each file as it was exported; empty of a model from before they were
            recorded, of which only the number of its data files is known, and that none is empty
            that never is.
    """
    if not sizes:
        for name in (GRAPH_FILE, INDEX):
            if not files[name].bytes:
                raise UserError(f"--model: {directory} is not whole: {name} is empty; {_MEND}")
        shards = _shards(posixpath.join(directory, INDEX))
        _check_names(directory, files, _data(shards))
    _check_names(directory, files, list(sizes))
    for name, size in sizes.items():
        if files[name].bytes != size:
            raise UserError(
                f"--model: {directory} is not whole: {name} has {files[name].bytes:,} bytes, but "
                f"{size:,} were exported. If it is being copied, wait; else {_MEND}"
            )


def _data(count: int) -> list[str]:
    """Names of the files that hold variables."""
    return [
        f"{VARIABLES_DIRECTORY}/{VARIABLES_NAME}.data-{k:05d}-of-{count:05d}" for k in range(count)
    ]


def _check_names(directory: str, files: Mapping[str, ModelFile], wanted: list[str]) -> None:
    if missing := [name for name in wanted if name not in files]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UserError(
            f"--model: {directory} is not whole: it has no {', '.join(missing[:3])}{more}. "
            f"If it is being written, wait; else {_MEND}"
        )


def _shards(path: str) -> int:
    """How many data files an index is of."""
    content = model_files.read(path)
    size = content[len(_FIRST_KEY)] if len(content) > len(_FIRST_KEY) else 0
    begin = len(_FIRST_KEY) + 1
    try:
        count = int(_header_class().FromString(content[begin : begin + size]).shards)
    except DecodeError:
        count = 0
    if not content.startswith(_FIRST_KEY) or size > _LONGEST_HEADER or count < 1:
        raise UserError(f"--model: {path} is no index of variables; {_MEND}")
    return count


@functools.cache
def _header_class() -> Any:
    return messages.class_of({"BundleHeaderProto": [Field("shards", 1, NUMBER)]})
