"""Restores the parameters from a checkpoint that fits the run, and passes over damaged ones."""

import dataclasses
import itertools
import logging
import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tfps.checkpoint import commit_marker, keyed_rows, reader
from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError, explain_failures
from tfps.checkpoint.directory import CheckpointDirectory, no_checkpoint
from tfps.checkpoint.layer_transfer import (
    LayerSelection,
    grown_tables,
    log_new_rows,
    read_grown,
    take_layers,
)
from tfps.data.followed_data import is_position
from tfps.errors import UserError
from tfps.experiment.experiment import Train
from tfps.model.lookup_tables import Numbering, renumbered
from tfps.store.parameter_store import ParameterStore
from tfps.store.stored_row import UNSAID

_NAMED_DIFFERENCES = 5
KEEP_NUMBERS = (
    "A row of a table belongs to a number: leave all words where they were, and append new ones"
)
_log = logging.getLogger(__name__)


def restore(
    checkpoint: Checkpoint, store: ParameterStore, datasets: Sequence[dict[str, Any]]
) -> None:
    """Reads a checkpoint's parameters into the store, for any number of ps.

    The data of epochs that have not begun may have changed since.
    """
    begun = max(1, checkpoint.queue.epoch + (checkpoint.queue.cursor > 0))
    if is_position(datasets) != is_position(checkpoint.datasets):
        did = "followed" if is_position(checkpoint.datasets) else "did not follow"
        raise UserError(
            f"checkpoint {checkpoint.path} is of a run that {did} datasets (data.follow_seconds); "
            "do the same, or use another --job_dir with --train.init_from"
        )
    several = len(checkpoint.datasets) > 1 or len(datasets) > 1
    refuse_misfit(
        checkpoint,
        {**store.signature(), **_data_of(datasets, begun, several)},
        store.layout.numberings,
        _data_of(checkpoint.datasets, begun, several),
    )
    read_whole(checkpoint, store)


def read_whole(checkpoint: Checkpoint, store: ParameterStore) -> None:
    with explain_failures(f"checkpoint {checkpoint.path} cannot be read"):
        reader.check(checkpoint)
        read_parameters(checkpoint, store)


def refuse_misfit(
    checkpoint: Checkpoint,
    ours: Mapping[str, Any],
    numberings: Mapping[str, Numbering],
    data: Mapping[str, Any] | None = None,
) -> None:
    """Compares a checkpoint, and what else `data` says of it, with the signature of a run."""
    if found := differences({**checkpoint.signature, **(data or {})}, ours):
        raise UserError(
            f"checkpoint {checkpoint.path} does not fit this run: {'; '.join(found)}; "
            "use another --job_dir, or the config that made it"
        )
    if others := renumbered(checkpoint.numberings, numberings):
        said = "; ".join(others)
        raise UserError(
            f"checkpoint {checkpoint.path} does not fit this run: {said}. {KEEP_NUMBERS}"
        )


def _data_of(
    datasets: Sequence[dict[str, Any]], epochs: int, several: bool
) -> dict[str, dict[str, Any]]:
    """Identities of what the first epochs train, by names for people."""
    if is_position(datasets):  # it is compared when datasets are taken up from there
        return {}
    if not several:
        return {"train data": datasets[0]}
    of_epochs = itertools.islice(itertools.cycle(datasets), epochs)
    return {f"train data of epoch {k}": data for k, data in enumerate(of_epochs, 1)}


def read_parameters(
    checkpoint: Checkpoint, store: ParameterStore, grown: Collection[str] = ()
) -> None:
    """Overwrites all that a store holds; `grown` names tables with more rows than there."""
    done = read_grown(checkpoint, store, grown)
    reader.read(checkpoint, [slice_ for slice_ in store.slices() if slice_.name not in done])
    for group in store.keyed_groups:
        keyed_rows.read(checkpoint, group, store.devices)
    store.set_steps(checkpoint.steps)
    _restore_learning_rates(checkpoint, store)


def _restore_learning_rates(checkpoint: Checkpoint, store: ParameterStore) -> None:
    if not checkpoint.learning_rates:
        return
    if store.learning_rates:
        store.learning_rates.restore(checkpoint.learning_rates)
    elif len(checkpoint.learning_rates) > 1:
        _log.warning(
            "callbacks had set the learning rate of checkpoint %s, to %g; now none can: the "
            "optimizer's own counts",
            checkpoint.path,
            checkpoint.learning_rates[-1][1],
        )


def restore_newest(
    directory: CheckpointDirectory, store: ParameterStore, datasets: Sequence[dict[str, Any]]
) -> tuple[Checkpoint | None, dict[str, str]]:
    """Reads the newest undamaged checkpoint into the store, if the job has one.

    Damaged ones are logged and passed over. Once an older one is restored they are renamed, so that
    none is the newest again, and kept for people. Also returns what is wrong with each, by its
    former path.
    """
    wrong: dict[str, str] = {}
    aside = directory.damaged()
    if aside:
        _log.warning("damaged checkpoints are kept; delete them in time: %s", ", ".join(aside))
    for path in reversed(directory.committed()):
        try:
            with explain_failures(f"checkpoint {path} cannot be read"):
                checkpoint = commit_marker.read(path)
            restore(checkpoint, store, datasets)
        except DamagedCheckpointError as damage:
            _log.warning("checkpoint %s is damaged and is passed over: %s", path, damage)
            wrong[path] = str(damage)
        else:
            for damaged in wrong:
                directory.set_aside(damaged)
            return checkpoint, wrong
    if wrong or aside:
        said = [f"{posixpath.basename(path)}: {why}" for path, why in wrong.items()]
        said += [f"{posixpath.basename(path)}: found before" for path in aside]
        raise UserError(
            f"every checkpoint in {directory.path} is damaged ({'; '.join(said)}); put one back "
            "from a copy, or delete them to train from the beginning"
        )
    return None, wrong


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """What two signatures disagree on, the first few in words."""
    found = []
    for group in sorted({*theirs, *ours}):
        old, new = theirs.get(group, {}), ours.get(group, {})
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                was, now = (each.get(key, UNSAID.get(key, "absent")) for each in (old, new))
                found.append(f"{group} {key} was {was}, is {now}")
    more = len(found) - _NAMED_DIFFERENCES
    return found[:_NAMED_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """A checkpoint of another job, with which a job begins that has none of its own.

    The other job is only read, and may be running: its newest whole checkpoint counts.
    """

    path: str  # of the job, or of a checkpoint
    # names, paths or patterns, taken with new slots; empty for everything, slots and updates
    # included
    layers: tuple[str, ...] = ()

    @classmethod
    def of(cls, train: Train) -> "WarmStart | None":
        """The start of an experiment; None for its initial values."""
        if train.init_layers and not train.init_from:
            raise UserError(
                f"--train.init_layers={','.join(train.init_layers)} without --train.init_from: "
                "name the job whose layers they are, or leave it out"
            )
        path = train.init_from.rstrip("/")
        return cls(path, train.init_layers) if path else None

    def check(
        self, signature: Mapping[str, Any], numberings: Mapping[str, Numbering] | None = None
    ) -> None:
        """Compares the checkpoint with the parameters of a run, without reading values."""
        self._use_newest(lambda checkpoint: self._fit(checkpoint, signature, numberings or {}))

    def begin(self, store: ParameterStore) -> Checkpoint:
        """Reads it into a store that was not trained yet."""

        def take(checkpoint: Checkpoint) -> None:
            selection = self._fit(checkpoint, store.signature(), store.layout.numberings)
            if selection:
                take_layers(checkpoint, selection, store)
            else:
                _take_everything(checkpoint, store)
                steps = f"{checkpoint.steps:,}"
                _log.info(
                    "taken from %s: all parameters and slots, %s steps", checkpoint.path, steps
                )

        return self._use_newest(take)

    def _fit(
        self, checkpoint: Checkpoint, ours: Mapping[str, Any], numberings: Mapping[str, Numbering]
    ) -> LayerSelection | None:
        """The layers that are taken; None for everything."""
        others = "; ".join(renumbered(checkpoint.numberings, numberings))
        if others and self.layers:
            _log.warning(
                "--train.init_layers: rows that are looked up by these numbers belong to other "
                "words in %s: %s",
                checkpoint.path,
                others,
            )
        if self.layers:
            return LayerSelection.of(self.layers, checkpoint.signature, ours, checkpoint.path)
        theirs = checkpoint.signature
        grown = {name: ours["tables"][name] for name in grown_tables(theirs, ours)}
        tables = {**theirs.get("tables", {}), **grown}
        if found := differences({**theirs, "tables": tables}, ours):
            raise UserError(
                f"--train.init_from: checkpoint {checkpoint.path} does not fit this run: "
                f"{'; '.join(found)}; a table may have more rows than there, nothing else may "
                "differ. --train.init_layers=NAME,NAME takes layers that both have, '*' all of "
                "them, with new slots"
            )
        if others:
            raise UserError(
                f"--train.init_from: checkpoint {checkpoint.path} does not fit this run: {others}. "
                f"{KEEP_NUMBERS}; --train.init_layers takes layers that these do not matter to"
            )
        return None

    def _use_newest(self, use: Callable[[Checkpoint], object]) -> Checkpoint:
        """Uses the newest whole checkpoint; of a running job they come and go."""
        wrong: dict[str, str] = {}
        while path := self._newest(wrong):
            try:
                with explain_failures(f"--train.init_from: checkpoint {path} cannot be read"):
                    return _use(path, use)
            except DamagedCheckpointError as damage:
                _log.warning("--train.init_from: checkpoint %s is passed over: %s", path, damage)
                wrong[path] = str(damage)
        if not wrong:
            raise no_checkpoint(f"--train.init_from={self.path}")
        said = "; ".join(f"{path}: {why}" for path, why in wrong.items())
        raise UserError(f"--train.init_from={self.path}: no checkpoint is whole ({said})")

    def _newest(self, wrong: Mapping[str, str]) -> str | None:
        """The newest committed checkpoint now, without the wrong ones."""
        with explain_failures(f"--train.init_from={self.path} cannot be read"):
            found = CheckpointDirectory.committed_at(self.path)
        return next((path for path in reversed(found) if path not in wrong), None)


def _take_everything(checkpoint: Checkpoint, store: ParameterStore) -> None:
    """Reads all parameters and slots; the learning rate stays this job's own."""
    rate = store.learning_rates.now if store.learning_rates else None
    grown = grown_tables(checkpoint.signature, store.signature())
    read_parameters(checkpoint, store, grown)
    log_new_rows(grown)
    if store.learning_rates and rate is not None:
        store.learning_rates.set(rate, checkpoint.steps)


def _use(path: str, use: Callable[[Checkpoint], object]) -> Checkpoint:
    """Uses a checkpoint; one that is deleted meanwhile is damaged."""
    try:
        checkpoint = commit_marker.read(path)
    except FileNotFoundError:
        raise DamagedCheckpointError("it was deleted meanwhile") from None
    reader.check(checkpoint)
    try:
        use(checkpoint)
    except reader.UnseenFilesError:
        reader.check(checkpoint)  # gone for the chief as well, if it was deleted
        raise
    return checkpoint
