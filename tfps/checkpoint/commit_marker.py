"""The commit marker: the file that makes a directory a checkpoint, written last, deleted first.

It is prepared under its own name and committed by renaming, which fails once the prepared file is
gone. A new chief deletes prepared files: an earlier chief can then never commit them, however long
it was stopped before the last look at its fence.
"""

import dataclasses
import json
import posixpath
import uuid
from typing import Any

import msgspec

from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError
from tfps.errors import UserError
from tfps.storage import files
from tfps.storage.failures import GO_ON, StorageError
from tfps.storage.paths import is_file_name

FORMAT = 6
NAME = "commit.json"
_PREPARED = f"{NAME}."
_CHECKSUM = "crc32c"


def is_in(directory: str) -> bool:
    return files.exists(posixpath.join(directory, NAME))


def prepare(checkpoint: Checkpoint) -> str:
    """Writes the marker for `commit`; the directory is no checkpoint yet."""
    fields = {"format": FORMAT, **dataclasses.asdict(checkpoint)}
    del fields["path"]
    prepared = posixpath.join(checkpoint.path, f"{_PREPARED}{uuid.uuid4()}")
    content = json.dumps({**fields, _CHECKSUM: _checksum(fields)}, indent=1)
    files.write(prepared, content.encode())
    return prepared


def commit(prepared: str) -> None:
    """Makes a checkpoint exist, atomically."""
    directory = posixpath.dirname(prepared)
    files.rename(prepared, posixpath.join(directory, NAME))
    files.sync([directory])


def forbid(directory: str) -> bool:
    """Deletes prepared markers, so that no commit can follow; whether the directory has none.

    It may have been committed at the last moment.
    """
    for name in files.names(directory):
        if name.startswith(_PREPARED):
            files.remove(posixpath.join(directory, name))
    if is_in(directory):
        return False
    if NAME in files.names(directory):
        raise StorageError(
            f"{directory} lists {NAME}, which cannot be found; {GO_ON}", may_pass=True
        )
    return True


def read(directory: str) -> Checkpoint:
    marker = posixpath.join(directory, NAME)
    content = files.read(marker)
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise DamagedCheckpointError(f"{NAME} is no JSON ({error})") from None
    if not isinstance(fields, dict):
        raise DamagedCheckpointError(f"{NAME} is no JSON object")
    stated = fields.pop(_CHECKSUM, None)
    if stated != _checksum(fields):
        raise DamagedCheckpointError(f"{NAME} was altered: its checksum differs")
    if fields["format"] != FORMAT:
        raise UserError(
            f"{marker} has format {fields['format']}, this version of tfps reads {FORMAT}; "
            "continue with the version that wrote it, or use another --job_dir"
        )
    try:
        found = msgspec.convert({**fields, "path": directory}, Checkpoint)
    except msgspec.ValidationError as error:
        raise DamagedCheckpointError(f"{NAME} is none of this format ({error})") from None
    _refuse_paths(found)
    return found


def _refuse_paths(checkpoint: Checkpoint) -> None:
    """Checks that files lie in the checkpoint's directory, and its base next to it."""
    bases = [checkpoint.increment.base.name] if checkpoint.increment else []
    for name in [*bases, *(file.name for file in checkpoint.files)]:
        if not is_file_name(name):
            raise DamagedCheckpointError(f"{NAME} names {name!r}, which is not the name of a file")


def remove(directory: str) -> None:
    """Makes a directory no checkpoint any more, also after a power cut."""
    files.remove(posixpath.join(directory, NAME))
    files.sync([directory])


def _checksum(fields: dict[str, Any]) -> str:
    """Of the marker's content without the checksum."""
    return files.checksum_of(json.dumps(fields, sort_keys=True).encode())
