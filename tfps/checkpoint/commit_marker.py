"""The commit marker: the file that makes a directory a checkpoint, written last, deleted first.

It is prepared under a name of its own and committed by renaming it, which succeeds only while the
prepared file is there. A chief that begins deletes prepared files: what an earlier chief had
prepared, it can then never commit, however long it was stopped before the last look at its fence.
"""

import dataclasses
import json
import posixpath
import uuid
from typing import Any

from tfps.checkpoint.checkpoint import (
    NO_LOSSES,
    Checkpoint,
    CheckpointFile,
    DamagedCheckpointError,
    Increment,
    TrainingLosses,
)
from tfps.errors import UserError
from tfps.leases.queue import QueueState
from tfps.storage import checksum, files
from tfps.storage.failures import StorageError
from tfps.storage.paths import is_file_name

FORMAT = 6

_FORMATS_WITHOUT_CHECKSUM = (1, 2, 3)

_CHECKSUM = "crc32c"

NAME = "commit.json"

_PREPARED = f"{NAME}."

_FORMATS = (5, FORMAT)  # that are read: before 6 all epochs trained one dataset


def is_in(directory: str) -> bool:
    """Whether a directory has one, whatever its state."""
    return files.exists(posixpath.join(directory, NAME))


def prepare(checkpoint: Checkpoint) -> str:
    """Writes all that `commit` needs; the directory is no checkpoint yet."""
    fields = {
        "format": FORMAT,
        "saved_at": checkpoint.saved_at,
        "steps": checkpoint.steps,
        "queue": checkpoint.queue.to_json(),
        "datasets": list(checkpoint.datasets),
        "signature": checkpoint.signature,
        "optimizers": checkpoint.optimizers,
        "increment": checkpoint.increment and dataclasses.asdict(checkpoint.increment),
        "files": [dataclasses.asdict(file) for file in checkpoint.files],
        "losses": dataclasses.asdict(checkpoint.losses),
        "learning_rates": list(map(list, checkpoint.learning_rates)),
        "numberings": dict(checkpoint.numberings),
    }
    prepared = posixpath.join(checkpoint.path, f"{_PREPARED}{uuid.uuid4()}")
    content = json.dumps({**fields, _CHECKSUM: _checksum(fields)}, indent=1)
    files.write(prepared, content.encode())
    return prepared


def commit(prepared: str) -> None:
    """Makes a checkpoint exist, in one piece."""
    directory = posixpath.dirname(prepared)
    files.rename(prepared, posixpath.join(directory, NAME))
    files.sync([directory])


def forbid(directory: str) -> bool:
    """Takes what was prepared from whoever prepared it; no commit can follow.

    Returns:
        Whether the directory has no marker. It was committed otherwise, at the last moment perhaps.
    """
    for name in files.names(directory):
        if name.startswith(_PREPARED):
            files.remove(posixpath.join(directory, name))
    if is_in(directory):
        return False
    if NAME in files.names(directory):
        raise StorageError(
            f"{directory} lists {NAME}, which cannot be found; when the storage answers again, the "
            "same command goes on",
            may_pass=True,
        )
    return True


def read(directory: str) -> Checkpoint:
    """The checkpoint of a directory."""
    marker = posixpath.join(directory, NAME)
    content = files.read(marker)
    try:
        fields = json.loads(content)
    except ValueError as error:
        raise DamagedCheckpointError(f"{NAME} is no JSON ({error})") from None
    if not isinstance(fields, dict):
        raise DamagedCheckpointError(f"{NAME} is no JSON object")
    stated = fields.pop(_CHECKSUM, None)
    is_older = stated is None and fields.get("format") in _FORMATS_WITHOUT_CHECKSUM
    if not is_older and stated != _checksum(fields):
        raise DamagedCheckpointError(f"{NAME} was altered: its checksum differs")
    if fields["format"] not in _FORMATS:
        raise UserError(
            f"{marker} has format {fields['format']}, this version of tfps reads "
            f"{' and '.join(map(str, _FORMATS))}; go on with the version that wrote it, or use "
            "another --job_dir"
        )
    _refuse_paths(fields)
    return Checkpoint(
        directory,
        fields["steps"],
        QueueState.from_json(fields["queue"]),
        tuple(fields["datasets"] if "datasets" in fields else [fields["dataset"]]),
        fields["signature"],
        fields.get("optimizers", {}),
        Increment.from_json(fields["increment"]) if fields["increment"] else None,
        fields["saved_at"],
        tuple(CheckpointFile(**file) for file in fields["files"]),
        # Earlier versions kept none of these.
        TrainingLosses.from_json(fields["losses"]) if "losses" in fields else NO_LOSSES,
        tuple((number, rate) for number, rate in fields.get("learning_rates", ())),
        fields.get("numberings", {}),
    )


def _refuse_paths(fields: dict[str, Any]) -> None:
    """Looks whether what a marker names lies beside it, and its base beside its directory."""
    names = [file["name"] for file in fields["files"]]
    if increment := fields["increment"]:
        names.append(increment["base"]["name"])
    for name in names:
        if not is_file_name(name):
            raise DamagedCheckpointError(f"{NAME} names {name!r}, which is not the name of a file")


def remove(directory: str) -> None:
    """Makes a directory no checkpoint any more, also after a power cut."""
    files.remove(posixpath.join(directory, NAME))
    files.sync([directory])


def _checksum(fields: dict[str, Any]) -> str:
    """Of the marker's content without the checksum itself."""
    return checksum.of_bytes(json.dumps(fields, sort_keys=True).encode())
