"""Checkpoints: each ps writes its own part; a commit marker makes them exist."""

import concurrent.futures
import dataclasses
import json
import logging
import posixpath
import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.errors import RunError, UserError
from tfps.failures import first_line, lost_ps_behind
from tfps.lease_queue import QueueState
from tfps.store.parameter_store import ParameterStore
from tfps.store.piece import Piece

COMMIT = "commit.json"
FORMAT = 3
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint.

    Attributes:
        path: Its directory.
        steps: Updates of the parameters that it holds.
        queue: State of the lease queue that belongs to them.
        dataset: Identity of the training data that the lease state speaks of.
        signature: What must be equal for the parameters to fit.
    """

    path: str
    steps: int
    queue: QueueState
    dataset: dict[str, Any]
    signature: dict[str, Any]

    @property
    def name(self) -> str:
        """Its directory's name; names sort in the order of the training."""
        return posixpath.basename(self.path)


class CheckpointDirectory:
    """`JOB_DIR/checkpoints`: one directory per checkpoint, named by its number of updates.

    A directory holds `parameters.*`, a TensorFlow checkpoint of logical tensors in slices, and
    `commit.json`, written last. Without `commit.json` it is not a checkpoint, whatever it holds.
    """

    def __init__(self, job_dir: str, keep: int):
        self._path = posixpath.join(job_dir, "checkpoints")
        self._keep = keep

    def save(
        self,
        store: ParameterStore,
        queue: QueueState,
        dataset: dict[str, Any],
        before_commit: Callable[[], None] = lambda: None,
    ) -> Checkpoint:
        """Saves the parameters with the state of the leases; then deletes old checkpoints.

        Args:
            store: The parameters; no worker may be changing them.
            queue: State of the leases that belongs to them.
            dataset: Identity of the training data.
            before_commit: Called when all but the marker is written; may raise to have none.

        Raises:
            RunError: If it cannot be written.
        """
        steps = store.steps()
        # The epoch is in the name, since epochs without records change no parameter.
        path = posixpath.join(self._path, f"{steps:012d}-{queue.epoch:06d}")
        if tf.io.gfile.exists(posixpath.join(path, COMMIT)):
            tf.io.gfile.remove(posixpath.join(path, COMMIT))
        checkpoint = Checkpoint(path, steps, queue, dataset, store.signature())
        try:
            tf.io.gfile.makedirs(path)
            _write_pieces(store.pieces(), posixpath.join(path, "parameters"))
            before_commit()
            _write_commit(checkpoint)
        except tf.errors.OpError as error:
            if lost_ps_behind(error):
                raise
            raise RunError(
                f"checkpoint {path} cannot be written ({first_line(error)}); is --job_dir full, or "
                "not writable for every ps? The checkpoint before it counts"
            ) from None
        for old in self._committed()[: -self._keep]:
            # The marker first: a half-deleted directory must not look like a checkpoint.
            tf.io.gfile.remove(posixpath.join(old, COMMIT))
            tf.io.gfile.rmtree(old)
        return checkpoint

    def latest(self) -> Checkpoint | None:
        """The newest committed checkpoint, None if there is none.

        Raises:
            UserError: If its commit marker cannot be read.
        """
        committed = self._committed()
        return _read_commit(committed[-1]) if committed else None

    def names(self) -> list[str]:
        """Names of the committed checkpoints, oldest first."""
        return [posixpath.basename(path) for path in self._committed()]

    def find(self, name: str) -> Checkpoint | None:
        """The committed checkpoint of that name; None if it is not there, or not any more.

        Raises:
            UserError: If its commit marker cannot be read.
        """
        try:
            return _read_commit(posixpath.join(self._path, name))
        except tf.errors.NotFoundError:
            return None

    def restore(
        self, checkpoint: Checkpoint, store: ParameterStore, dataset: dict[str, Any]
    ) -> None:
        """Reads a checkpoint's parameters into the store, for any number of ps.

        Raises:
            UserError: If it was made by another model, other optimizers or on other data.
        """
        ours = {**store.signature(), "train data": dataset}
        theirs = {**checkpoint.signature, "train data": checkpoint.dataset}
        differences = _differences(theirs, ours)
        if differences:
            raise UserError(
                f"checkpoint {checkpoint.path} does not fit this run: {'; '.join(differences)}; "
                "use another --job_dir, or the config that made it"
            )
        _read_pieces(store.pieces(), posixpath.join(checkpoint.path, "parameters"))
        store.set_steps(checkpoint.steps)

    def delete_uncommitted(self) -> None:
        """Deletes what saves that were cut off left behind."""
        committed = set(self._committed())
        for path in self._directories():
            if path not in committed:
                _log.warning("deleting the unfinished checkpoint %s", path)
                tf.io.gfile.rmtree(path)

    def _directories(self) -> list[str]:
        if not tf.io.gfile.isdir(self._path):
            return []
        names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(self._path))
        return [posixpath.join(self._path, n) for n in names if re.fullmatch(r"\d{12}-\d{6}", n)]

    def _committed(self) -> list[str]:
        """Committed checkpoints, oldest first."""
        return [p for p in self._directories() if tf.io.gfile.exists(posixpath.join(p, COMMIT))]


def _write_pieces(pieces: Sequence[Piece], prefix: str) -> None:
    """Writes all pieces, each ps its own at the same time, and joins their indices."""

    @tf.function(autograph=False)
    def write() -> None:
        prefixes, saves = [], []
        for number, device in enumerate(dict.fromkeys(piece.device for piece in pieces)):
            mine = [piece for piece in pieces if piece.device == device]
            chunks = [(piece, chunk) for piece in mine for chunk in piece.chunks()]
            if not chunks:  # fewer values than ps
                continue
            part = f"{prefix}.part-{number}"
            with tf.device(device):
                save = tf.raw_ops.SaveV2(
                    prefix=part,
                    tensor_names=[piece.name for piece, _ in chunks],
                    shape_and_slices=[piece.slice_spec(*chunk) for piece, chunk in chunks],
                    tensors=[value for piece in mine for value in piece.values()],
                )
            prefixes.append(part)
            saves.append(save)
        with tf.control_dependencies(saves):
            tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=prefix)

    write()


def _read_pieces(pieces: Sequence[Piece], prefix: str) -> None:
    """Overwrites all pieces: every ps at the same time, one chunk after the other.

    Not as one graph, in which a third of the chunks were seen to be held at once.
    """
    devices = list(dict.fromkeys(piece.device for piece in pieces))

    def read(device: str) -> None:
        for piece in (piece for piece in pieces if piece.device == device):
            for first, count in piece.chunks():
                with tf.device(device):
                    (value,) = tf.raw_ops.RestoreV2(
                        prefix=prefix,
                        tensor_names=[piece.name],
                        shape_and_slices=[piece.slice_spec(first, count)],
                        dtypes=[piece.variable.dtype],
                    )
                    piece.write(first, value)
            with tf.device(device):
                tf.raw_ops.DisableCopyOnRead(resource=piece.variable.handle)

    pool = concurrent.futures.ThreadPoolExecutor(len(devices), "restore")
    try:
        list(pool.map(read, devices))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _write_commit(checkpoint: Checkpoint) -> None:
    data = {
        "format": FORMAT,
        "steps": checkpoint.steps,
        "queue": checkpoint.queue.to_json(),
        "dataset": checkpoint.dataset,
        "signature": checkpoint.signature,
    }
    marker = posixpath.join(checkpoint.path, COMMIT)
    with tf.io.gfile.GFile(marker + ".tmp", "w") as file:
        file.write(json.dumps(data, indent=1))
    tf.io.gfile.rename(marker + ".tmp", marker, overwrite=True)


def _read_commit(path: str) -> Checkpoint:
    marker = posixpath.join(path, COMMIT)
    try:
        with tf.io.gfile.GFile(marker) as file:
            data = json.load(file)
        if data["format"] != FORMAT:
            raise UserError(f"{marker}: format {data['format']}, this version reads {FORMAT}")
        queue = QueueState.from_json(data["queue"])
        return Checkpoint(path, data["steps"], queue, data["dataset"], data["signature"])
    except tf.errors.NotFoundError:
        raise
    except (ValueError, KeyError, TypeError, tf.errors.OpError) as error:
        raise UserError(
            f"{marker} cannot be read ({error}); delete its directory to go on from the checkpoint "
            "before it"
        ) from None


def _differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """What two signatures disagree on, in words."""
    found = []
    for part in sorted({*theirs, *ours}):
        old, new = theirs.get(part, {}), ours.get(part, {})
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                was = old.get(key, "absent")
                found.append(f"{part} {key} was {was}, is {new.get(key, 'absent')}")
    return found[:5] + ([f"and {len(found) - 5} more"] if len(found) > 5 else [])
