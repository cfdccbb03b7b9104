"""The commit marker: the file that makes a directory a checkpoint, written last, deleted first."""

import dataclasses
import json
import posixpath
from typing import Any

import tensorflow as tf

from tfps import whole_file
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.damage import Damage
from tfps.checkpoint.increment import Increment
from tfps.checkpoint.part_file import PartFile
from tfps.data import checksum
from tfps.errors import UserError
from tfps.file_name import is_file_name
from tfps.lease_queue import QueueState

NAME = "commit.json"
FORMAT = 5
_FORMATS_WITHOUT_CHECKSUM = (1, 2, 3)
_CHECKSUM = "crc32c"


def is_in(directory: str) -> bool:
    """Whether a directory has one, whatever its state."""
    return bool(tf.io.gfile.exists(posixpath.join(directory, NAME)))


def write(checkpoint: Checkpoint) -> None:
    """Makes a checkpoint exist, in one piece.

    Raises:
        tf.errors.OpError: If it cannot be written.
    """
    fields = {
        "format": FORMAT,
        "saved_at": checkpoint.saved_at,
        "steps": checkpoint.steps,
        "queue": checkpoint.queue.to_json(),
        "dataset": checkpoint.dataset,
        "signature": checkpoint.signature,
        "increment": checkpoint.increment and dataclasses.asdict(checkpoint.increment),
        "files": [dataclasses.asdict(file) for file in checkpoint.files],
    }
    marker = posixpath.join(checkpoint.path, NAME)
    whole_file.write(marker, json.dumps({**fields, _CHECKSUM: _checksum(fields)}, indent=1))


def read(directory: str) -> Checkpoint:
    """The checkpoint of a directory.

    Raises:
        Damage: If the marker is not what was written.
        UserError: If another version of tfps wrote it.
        tf.errors.OpError: If the storage does not answer.
    """
    marker = posixpath.join(directory, NAME)
    with tf.io.gfile.GFile(marker, "rb") as file:
        content = file.read()
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise Damage(f"{NAME} is no JSON ({error})") from None
    if not isinstance(fields, dict):
        raise Damage(f"{NAME} is no JSON object")
    stated = fields.pop(_CHECKSUM, None)
    is_older = stated is None and fields.get("format") in _FORMATS_WITHOUT_CHECKSUM
    if not is_older and stated != _checksum(fields):
        raise Damage(f"{NAME} was altered: its checksum differs")
    if fields["format"] != FORMAT:
        raise UserError(
            f"{marker} has format {fields['format']}, this version of tfps reads {FORMAT}; go on "
            "with the version that wrote it, or use another --job_dir"
        )
    _refuse_paths(fields)
    return Checkpoint(
        directory,
        fields["steps"],
        QueueState.from_json(fields["queue"]),
        fields["dataset"],
        fields["signature"],
        Increment.from_json(fields["increment"]) if fields["increment"] else None,
        fields["saved_at"],
        tuple(PartFile(**file) for file in fields["files"]),
    )


def _refuse_paths(fields: dict[str, Any]) -> None:
    """Looks whether what a marker names lies beside it, and its base beside its directory."""
    names = [file["name"] for file in fields["files"]]
    if increment := fields["increment"]:
        names.append(increment["base"]["name"])
    for name in names:
        if not is_file_name(name):
            raise Damage(f"{NAME} names {name!r}, which is not the name of a file")


def remove(directory: str) -> None:
    """Makes a directory no checkpoint any more."""
    tf.io.gfile.remove(posixpath.join(directory, NAME))


def _checksum(fields: dict[str, Any]) -> str:
    """Of the marker's content without the checksum itself."""
    return checksum.of_bytes(json.dumps(fields, sort_keys=True).encode())
