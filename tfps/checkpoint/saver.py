"""Saves checkpoints, one at a time, while training continues or not."""

import concurrent.futures
import dataclasses
import logging
import posixpath
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from tfps.checkpoint import commit_marker, reader
from tfps.checkpoint.checkpoint import (
    NO_LOSSES,
    Checkpoint,
    CheckpointFile,
    DamagedCheckpointError,
    Draft,
    Increment,
    State,
    TrainingLosses,
    explain_failures,
)
from tfps.checkpoint.directory import CheckpointDirectory, OldCheckpoints
from tfps.checkpoint.increments import Increments, Snapshot
from tfps.checkpoint.keyed_snapshot import Pace
from tfps.checkpoint.writer import CheckpointWriter
from tfps.cluster.ps_calls import PsCalls
from tfps.errors import RunError
from tfps.job_dir.report import SaveCounts
from tfps.leases.queue import QueueState
from tfps.storage import files
from tfps.store.parameter_store import ParameterStore

_END_SECONDS = 30.0  # that a run which fails waits for the save under way
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


def save(
    directory: CheckpointDirectory,
    old: OldCheckpoints,
    draft: Draft,
    writer: CheckpointWriter,
    before_commit: Callable[[], None],
    pace: Pace | None = None,
) -> Checkpoint:
    """Saves parameters and leases, then deletes old checkpoints; one that is there stays.

    Nothing may change what `writer` writes. `before_commit` runs when all is on the disk and the
    marker prepared; it may raise to have no checkpoint.
    """
    path = posixpath.join(directory.path, draft.name)
    with explain_failures(
        f"checkpoint {path} cannot be written",
        "is --job_dir full, or not writable for every ps? The checkpoint before it counts",
    ):
        if saved := _find_saved(directory, path):
            return saved
        checkpoint = _write_files(path, draft, writer, pace)
        prepared = commit_marker.prepare(checkpoint)
        before_commit()
        commit_marker.commit(prepared)
    with explain_failures(
        f"old checkpoints in {directory.path} cannot be deleted", f"{path} is there and counts"
    ):
        old.delete()
    return checkpoint


def _find_saved(directory: CheckpointDirectory, path: str) -> Checkpoint | None:
    """The checkpoint at a path; afterwards there is nothing if there is none."""
    if not files.exists(path) or directory.delete_unless_committed(path):
        return None
    try:
        checkpoint = commit_marker.read(path)
        reader.check(checkpoint)
    except DamagedCheckpointError:  # it is written again
        directory.set_aside(path)
        return None
    return checkpoint


def _write_files(
    path: str, draft: Draft, writer: CheckpointWriter, pace: Pace | None
) -> Checkpoint:
    """Writes all of a checkpoint but its marker to the disk."""
    files.make_directories(path)
    writer.write(path, draft.increment, draft.keyed, pace)
    written = CheckpointFile.all_in(path)
    files.sync([*(posixpath.join(path, file.name) for file in written), path])
    state = {each.name: getattr(draft, each.name) for each in dataclasses.fields(State)}
    return Checkpoint(path=path, saved_at=time.time(), files=written, **state)


class Saver:
    """Saves checkpoints, full ones or increments, and reports their outcome.

    In the background the ps keep a copy and write that, while workers change the parameters. It is
    a context; no save is under way after it.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        old: OldCheckpoints,
        store: ParameterStore,
        ps_calls: PsCalls,
        in_background: bool,  # takes the memory of another copy of the parameters on every ps
        largest_increment: float,  # part of a full checkpoint's bytes
        spread_seconds: float = 0.0,
    ):
        self._directory = directory
        self._old = old
        self._store = store
        self._ps_calls = ps_calls
        slices = store.slices()
        self._snapshot = Snapshot(slices) if in_background else None
        written = self._snapshot.slices if self._snapshot else slices
        self._writer = CheckpointWriter(written, rests=in_background)
        self._increments = Increments(slices, store.keyed_groups, largest_increment)
        self._pace = Pace(spread_seconds if in_background else 0.0)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "save")
        self._writing: concurrent.futures.Future[Checkpoint] | None = None
        self._after_commit: Callable[[Checkpoint], None] = lambda checkpoint: None
        self._is_abandoned = threading.Event()
        self._saved, self._saved_increments, self._size = 0, 0, 0
        self._stopped_seconds, self._write_seconds = 0.0, 0.0

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Notes the checkpoint that the parameters were restored from."""
        self._increments.resume_from(checkpoint)

    def poll(self) -> None:
        """Finishes the save under way if it is done."""
        if self._writing is not None and self._writing.done():
            self.finish()

    def begin(
        self,
        queue: QueueState,
        datasets: tuple[dict[str, Any], ...],
        before_commit: Callable[[], None],
        after_commit: Callable[[Checkpoint], None],
        is_full: bool = False,
        losses: TrainingLosses = NO_LOSSES,
        since: str | None = None,
    ) -> None:
        """Begins to save once the last save is finished; returns when parameters may change again.

        No worker may change them when it is called. `before_commit` is called in another thread
        when all but the marker is written; it may raise to have no checkpoint. `since` is as for
        `Increments.begin`.
        """
        began = time.monotonic()
        draft = self._ps_calls(
            "preparing to save",
            lambda: self._draft(queue, datasets, self._increments.begin(is_full, since), losses),
            self._store.layout.ps_bytes,
        )
        self._after_commit = after_commit
        self._pace.begin()
        self._writing = writing = self._thread.submit(self._write, draft, before_commit)
        if not self._snapshot:
            self._await(lambda: concurrent.futures.wait([writing]))
        self._stopped_seconds += time.monotonic() - began

    def finish(self) -> None:
        """Waits for the save under way, if any, and reports it."""
        if self._writing is None:
            return
        self._pace.hurry()
        writing, self._writing = self._writing, None
        checkpoint = self._await(writing.result)
        self._increments.committed(checkpoint)
        self._saved, self._size = self._saved + 1, checkpoint.size
        self._saved_increments += checkpoint.increment is not None
        self._after_commit(checkpoint)

    def _await(self, wait: Callable[[], _T]) -> _T:
        return self._ps_calls("saving a checkpoint", wait, self._store.layout.ps_bytes)

    def report(self) -> SaveCounts:
        return SaveCounts(
            saved=self._saved,
            increments=self._saved_increments,
            bytes=self._size,
            stopped_seconds=round(self._stopped_seconds, 3),
            write_seconds=round(self._write_seconds, 3),
            touched_rows=sum(self._increments.touched_rows.values()),
            touched_by_table=self._increments.touched_rows,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Waits for the save under way when the run failed, but not when it was stopped."""
        self._pace.hurry()
        if self._writing is not None and isinstance(error, Exception):
            concurrent.futures.wait([self._writing], _END_SECONDS)
            try:
                self.poll()
            except Exception as failure:  # the run's own error is what counts
                _log.warning("the checkpoint that was being saved is lost: %s", failure)
        self._is_abandoned.set()

    def _draft(
        self,
        queue: QueueState,
        datasets: tuple[dict[str, Any], ...],
        increment: Increment | None,  # planned before the rows are read; see `TouchedRows`
        losses: TrainingLosses,
    ) -> Draft:
        if self._snapshot:
            self._snapshot.take()
        return Draft.of(self._store, queue, datasets, increment, losses)

    def _write(self, draft: Draft, before_commit: Callable[[], None]) -> Checkpoint:
        def check() -> None:
            before_commit()
            if self._is_abandoned.is_set():
                raise RunError("the run has ended without it")

        began = time.monotonic()
        try:
            return save(self._directory, self._old, draft, self._writer, check, self._pace)
        finally:
            self._increments.end()
            if self._snapshot:
                self._snapshot.clear()
            self._write_seconds += time.monotonic() - began
