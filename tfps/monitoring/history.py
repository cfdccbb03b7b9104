"""`JOB_DIR/history`: what happened in the runs of a job, a line of JSON for each event."""

import json
import posixpath
from collections.abc import Iterator

from tfps.errors import UserError
from tfps.monitoring import event_json
from tfps.monitoring.events import RunEvent
from tfps.storage import files
from tfps.storage.files import GrowingFile, writer_of

DIRECTORY = "history"
_SUFFIX = ".jsonl"


class RunHistory:
    """What one chief adds to the history of its job."""

    name = "the history"

    def __init__(self, job_dir: str, began: float):
        """Writes nothing yet.

        Args:
            began: When the chief began, seconds since 1970: what later ones write comes after it.
        """
        chief, directory = writer_of(began), posixpath.join(job_dir, DIRECTORY)
        self._file = GrowingFile(directory, lambda number: f"{chief}.{number:06d}{_SUFFIX}")

    def tell(self, event: RunEvent) -> None:
        """Adds what happened."""
        self._file.append(f"{json.dumps(event_json.to_json(event))}\n".encode())

    def flush(self) -> None:
        """Brings what was added to where it is read."""
        self._file.flush()


def read(job_dir: str) -> list[RunEvent]:
    """What happened in a job, in order; nothing if it keeps no history.

    The last line of a file may be one that is being written, or was when its chief was killed: it
    is left out.
    """
    directory = posixpath.join(job_dir, DIRECTORY)
    try:
        names = files.names(directory)
    except FileNotFoundError:
        return []
    paths = (posixpath.join(directory, name) for name in names if name.endswith(_SUFFIX))
    return [event for path in paths for event in _events(path)]


def _events(path: str) -> Iterator[RunEvent]:
    *lines, _ = files.read(path).split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            event = event_json.from_json(json.loads(line))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path}, line {number}, is damaged ({error}); delete the line, or the file"
            ) from None
        if event:
            yield event
