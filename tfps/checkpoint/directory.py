"""The checkpoints of a job: saving, finding, checking, restoring, deleting."""

import contextlib
import itertools
import logging
import posixpath
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from tfps.checkpoint import commit_marker, reader
from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError, Draft, PartFile
from tfps.checkpoint.retention import Retention
from tfps.checkpoint.writer import CheckpointWriter
from tfps.cluster.failures import first_line, lost_ps_behind
from tfps.errors import RunError, UserError
from tfps.evaluation.history import Evaluations
from tfps.storage import files
from tfps.storage.failures import StorageError, explain
from tfps.storage.paths import is_cloud
from tfps.store.parameter_store import ParameterStore

_NAME = re.compile(r"\d{12}-\d{6}(-\d{12})?")
_ASIDE = re.compile(rf"{_NAME.pattern}\.damaged-\d+")
_log = logging.getLogger(__name__)


class CheckpointDirectory:
    """`JOB_DIR/checkpoints`: one directory per checkpoint, in the order of their names.

    A directory holds `parameters.*`, a TensorFlow checkpoint of logical tensors in slices, and
    `commit.json`, written last. Without `commit.json` it is not a checkpoint, whatever it holds.
    One that was found damaged is kept under a name that ends in `.damaged-1` or so.
    """

    def __init__(self, job_dir: str, retention: Retention):
        self._path = posixpath.join(job_dir, "checkpoints")
        self._retention = retention
        self._evaluations = Evaluations(job_dir)
        self._known: dict[str, Checkpoint] = {}

    def save(
        self,
        draft: Draft,
        writer: CheckpointWriter,
        before_commit: Callable[[], None] = lambda: None,
    ) -> Checkpoint:
        """Saves the parameters with the state of the leases; then deletes old checkpoints.

        Args:
            draft: Which state to save.
            writer: Of the parameters in this state; nothing may be changing what it writes.
            before_commit: Called when all is on the disk and the marker prepared; may raise to have
                no checkpoint.

        Returns:
            The checkpoint; where this state is saved already, the one that is.

        Raises:
            RunError: If it cannot be written, or another chief has begun meanwhile.
        """
        path = posixpath.join(self._path, draft.name)
        with _explained(
            f"checkpoint {path} cannot be written",
            "is --job_dir full, or not writable for every ps? The checkpoint before it counts",
        ):
            if saved := self._saved(path):
                return saved
            files.make_directories(path)
            writer.write(path, draft.increment)
            parts = PartFile.all_in(path)
            files.sync([*(posixpath.join(path, part.name) for part in parts), path])
            checkpoint = Checkpoint(
                path,
                draft.steps,
                draft.queue,
                draft.dataset,
                draft.signature,
                draft.increment,
                time.time(),
                parts,
            )
            prepared = commit_marker.prepare(checkpoint)
            before_commit()
            commit_marker.commit(prepared)
        with _explained(
            f"old checkpoints in {self._path} cannot be deleted", f"{path} is there and counts"
        ):
            self._delete_old()
        return checkpoint

    def latest(self) -> Checkpoint | None:
        """The newest committed checkpoint, None if there is none.

        Raises:
            DamagedCheckpointError: If its commit marker is damaged.
            UserError: If another version of tfps wrote it.
        """
        committed = self._committed()
        return commit_marker.read(committed[-1]) if committed else None

    def names(self) -> list[str]:
        """Names of the committed checkpoints, oldest first."""
        return [posixpath.basename(path) for path in self._committed()]

    def find(self, name: str) -> Checkpoint | None:
        """The committed checkpoint of that name; None if it is not there, or not any more.

        Raises:
            RunError: If its commit marker is damaged.
            UserError: If another version of tfps wrote it.
        """
        path = posixpath.join(self._path, name)
        try:
            return commit_marker.read(path)
        except FileNotFoundError:
            return None
        except DamagedCheckpointError as damage:
            raise RunError(f"checkpoint {path} is damaged: {damage}; delete it") from None

    def restore(
        self, checkpoint: Checkpoint, store: ParameterStore, dataset: dict[str, Any]
    ) -> None:
        """Reads a checkpoint's parameters into the store, for any number of ps.

        Raises:
            DamagedCheckpointError: If a file of it, or of its base, is damaged; the store holds
                parts of it.
            UserError: If it was made by another model, other optimizers or on other data.
            RunError: If the storage does not answer.
        """
        ours = {**store.signature(), "train data": dataset}
        theirs = {**checkpoint.signature, "train data": checkpoint.dataset}
        differences = _differences(theirs, ours)
        if differences:
            raise UserError(
                f"checkpoint {checkpoint.path} does not fit this run: {'; '.join(differences)}; "
                "use another --job_dir, or the config that made it"
            )
        with _explained(f"checkpoint {checkpoint.path} cannot be read", _GO_ON):
            reader.check(checkpoint)
            reader.read(checkpoint, store.slices())
        store.set_steps(checkpoint.steps)

    def restore_newest(
        self, store: ParameterStore, dataset: dict[str, Any]
    ) -> tuple[Checkpoint | None, dict[str, str]]:
        """Reads the newest checkpoint that is not damaged into the store.

        Damaged ones are told of and passed over. Once an older one is restored they are renamed, so
        that none of them is taken for the newest again; people may look at them, and delete them.

        Returns:
            The checkpoint, None when the job has none yet; and what is wrong with each that was
            passed over, by its path as it was.

        Raises:
            UserError: If the newest that is not damaged does not fit; if all are damaged.
            RunError: If the storage does not answer.
        """
        wrong: dict[str, str] = {}
        aside = self._directories(_ASIDE)
        if aside:
            _log.warning("damaged checkpoints are kept; delete them in time: %s", ", ".join(aside))
        for path in reversed(self._committed()):
            try:
                with _explained(f"checkpoint {path} cannot be read", _GO_ON):
                    checkpoint = commit_marker.read(path)
                self.restore(checkpoint, store, dataset)
            except DamagedCheckpointError as damage:
                _log.warning("checkpoint %s is damaged and is passed over: %s", path, damage)
                wrong[path] = str(damage)
            else:
                self._set_aside(wrong)
                return checkpoint, wrong
        if wrong or aside:
            said = [f"{posixpath.basename(path)}: {why}" for path, why in wrong.items()]
            said += [f"{posixpath.basename(path)}: found before" for path in aside]
            raise UserError(
                f"every checkpoint in {self._path} is damaged ({'; '.join(said)}); put one back "
                "from a copy, or delete them to train from the beginning"
            )
        return None, wrong

    def delete_uncommitted(self) -> None:
        """Deletes what saves that were cut off left behind, of this job's earlier chiefs.

        None of them can commit anything once this returns. What may be committed is not deleted.

        Raises:
            StorageError: If the storage does not say what is committed.
        """
        for path in self._directories():
            self._delete_unless_committed(path)

    def _saved(self, path: str) -> Checkpoint | None:
        """The checkpoint that is at a path already; there is nothing any more if there is none."""
        if not files.exists(path) or self._delete_unless_committed(path):
            return None
        try:
            return _checked(path)
        except DamagedCheckpointError as damage:  # it is written again
            self._set_aside({path: str(damage)})
            return None

    def _delete_unless_committed(self, path: str) -> bool:
        """Deletes a directory that is certainly no checkpoint; whether it was none."""
        if not commit_marker.forbid(path):
            return False
        _log.warning("deleting the unfinished checkpoint %s", path)
        files.remove_tree(path)
        return True

    def _delete_old(self) -> None:
        found = self._readable()
        saved_at = {path: checkpoint.saved_at for path, checkpoint in found.items()}
        bases = {path: posixpath.join(self._path, x.base.name) for path, x in found.items()}
        evaluated = {
            posixpath.join(self._path, each.checkpoint): each.metrics
            for each in self._evaluations.all()
        }
        metrics = {path: evaluated[path] for path in found if path in evaluated}
        stay = self._retention.stay(saved_at, metrics, bases)
        # The newest first: there is never an increment whose base is gone.
        for path in reversed([path for path in found if path not in stay]):
            # The marker first: a half-deleted directory must not look like a checkpoint.
            commit_marker.remove(path)
            files.remove_tree(path)
            del self._known[path]

    def _readable(self) -> dict[str, Checkpoint]:
        """Committed checkpoints whose markers are whole, oldest first; each is read once."""
        found: dict[str, Checkpoint] = {}
        for path in self._committed():
            try:
                found[path] = self._known.get(path) or commit_marker.read(path)
            except FileNotFoundError as error:  # it was there a moment ago
                raise explain(error, "read", path) from None
            except DamagedCheckpointError as damage:
                _log.warning("checkpoint %s is damaged and is not deleted: %s", path, damage)
        self._known = dict(found)
        return found

    def _set_aside(self, paths: Mapping[str, str]) -> None:
        for path in paths:
            names = (f"{path}.damaged-{number}" for number in itertools.count(1))
            target = next(name for name in names if not files.exists(name))
            _log.warning("keeping the damaged checkpoint %s as %s", path, target)
            with _explained(f"{path} cannot be renamed to {target}", "rename or delete it"):
                _move(path, target)

    def _directories(self, names: re.Pattern[str] = _NAME) -> list[str]:
        """Directories with such names, oldest checkpoint first."""
        try:
            found = files.names(self._path)
        except FileNotFoundError:
            return []
        return [posixpath.join(self._path, name) for name in found if names.fullmatch(name)]

    def _committed(self) -> list[str]:
        """Committed checkpoints, oldest first."""
        return [path for path in self._directories() if commit_marker.is_in(path)]


_GO_ON = "when the storage answers again, the same command goes on from the last checkpoint"


@contextlib.contextmanager
def _explained(what: str, mend: str) -> Iterator[None]:
    """Makes errors of the storage a `RunError` that says what they prevented.

    TensorFlow's are those of the ps, too; that of a lost ps stays what it is.
    """
    try:
        yield
    except StorageError as error:  # it says itself that the run can go on
        raise RunError(f"{what}: {error}" + (f"; {mend}" if mend != _GO_ON else "")) from None
    except FileNotFoundError as error:
        raise RunError(
            f"{what}: {error.filename} is gone; another chief may have begun; {mend}"
        ) from None
    except tf.errors.OpError as error:
        if lost_ps_behind(error):
            raise
        raise RunError(f"{what} ({first_line(error)}); {mend}") from None


def _move(path: str, target: str) -> None:
    """Renames a checkpoint's directory."""
    if not is_cloud(path):
        files.rename(path, target)
        files.sync([posixpath.dirname(path)])
        return
    # On gs:// only files have names. The marker is the first: what is half moved is no checkpoint.
    for name in files.names(path):
        files.rename(posixpath.join(path, name), posixpath.join(target, name))
    files.remove_tree(path)


def _checked(path: str) -> Checkpoint:
    """A committed checkpoint whose files are what its marker says."""
    checkpoint = commit_marker.read(path)
    reader.check(checkpoint)
    return checkpoint


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
