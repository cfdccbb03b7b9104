"""What a cluster predicts: a file for each shard, and a manifest once all are there."""

import dataclasses
import json
import posixpath
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tfps.data.manifest import Manifest
from tfps.errors import UserError
from tfps.evaluation.metrics import EvaluatedPiece
from tfps.storage import files
from tfps.storage.paths import canonical
from trainer.datasets.predictions_file import PredictionsFile

MANIFEST = "manifest.json"
_JOB = "job.json"  # what the parts are of, there before the first of them
_FORMAT = 1
_ASKED_AT_ONCE = 16  # parts that an earlier process wrote, for their sizes


@dataclasses.dataclass(frozen=True)
class PartsOf:
    """What predictions are of: parts of another job are not taken for its own."""

    checkpoint: tuple[str, float]
    data: dict[str, Any]
    keep: tuple[str, ...]
    form: str

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {"format": _FORMAT, **dataclasses.asdict(self), "checkpoint": list(self.checkpoint)}


class PredictionParts:
    """A directory with a file of predictions for each shard of a dataset, in its order.

    A part has its name once it is whole: whoever begins again goes on with those that are missing.
    """

    def __init__(self, directory: str, of: PartsOf, data: Manifest, labels: Sequence[str]):
        self._directory = directory
        self._of = of
        self._data = data
        self._labels = labels
        self._file: PredictionsFile | None = None
        self._bytes: dict[int, int] = {}  # of the parts that this process has written, by shard
        self._begin()

    def missing(self) -> list[int]:
        """Positions of the shards whose parts are not there."""
        found = set(files.names(self._directory))
        shards = enumerate(self._data.shards)
        return [k for k, shard in shards if shard.records and self.name(k) not in found]

    def name(self, shard: int) -> str:
        """Name of the part of a shard, by its position."""
        return f"part-{shard:05d}-of-{len(self._data.shards):05d}.{self._of.form}"

    def write(self, shard: int, result: EvaluatedPiece, is_last: bool) -> None:
        """Adds some records to the part of their shard.

        Args:
            shard: Position of the shard; another one only when the part before is whole.
            result: What was predicted of the records behind those that were added before.
            is_last: Whether the shard ends with them, and the part with it.
        """
        if self._file is None:
            path = posixpath.join(self._directory, self.name(shard))
            self._file = PredictionsFile(path, overwrite=True)
            self._file.open()
        kept = {name: result.labels[name] for name in self._of.keep}
        labels = {name: result.labels[name] for name in self._labels}
        self._file.write(kept, labels, result.predictions)
        if is_last:
            self._bytes[shard] = self._file.finish()
            self._file = None

    def discard(self) -> None:
        """Removes the part that is not whole, if there is one."""
        if self._file is not None:
            self._file.discard()
            self._file = None

    def finish(self) -> str:
        """Writes the manifest, once all parts are there; returns its path."""
        shards = [k for k, shard in enumerate(self._data.shards) if shard.records]
        found = [k for k in shards if k not in self._bytes]
        with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as pool:
            sizes = self._bytes | dict(zip(found, pool.map(self._size, found), strict=True))
        parts = [
            {"file": self.name(k), "records": self._data.shards[k].records, "bytes": sizes[k]}
            for k in shards
        ]
        path = posixpath.join(self._directory, MANIFEST)
        content = {**self._of.to_json(), "records": self._data.records, "parts": parts}
        files.write(path, _json(content))
        return path

    def _size(self, shard: int) -> int:
        return files.size(posixpath.join(self._directory, self.name(shard)))

    def _begin(self) -> None:
        path = posixpath.join(self._directory, _JOB)
        files.make_directories(self._directory)
        wanted = json.loads(_json(self._of.to_json()))
        try:
            found = json.loads(files.read(path))
        except FileNotFoundError:
            files.write(path, _json(self._of.to_json()))
            return
        except json.JSONDecodeError:
            found = None
        if _of_one_spelling(found) != _of_one_spelling(wanted):
            raise UserError(
                f"{self._directory} has predictions of another checkpoint, of other data or in "
                "another form; delete them, or name another --job_dir"
            )


def _of_one_spelling(content: Any) -> Any:
    """What `to_json` gave, whose checkpoint may have been named by another path to it."""
    try:
        path, saved_at = content["checkpoint"]
        return {**content, "checkpoint": [canonical(path), saved_at]}
    except (KeyError, TypeError, ValueError):  # something else stands there
        return content


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
