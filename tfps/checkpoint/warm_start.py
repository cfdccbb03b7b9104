"""What a new job begins with of another: its parameters and slots, or some layers' parameters."""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from tfps.checkpoint import commit_marker, reader
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.directory import CheckpointDirectory, no_checkpoint
from tfps.checkpoint.failures import DamagedCheckpointError, explain_failures
from tfps.checkpoint.layer_selection import LayerSelection
from tfps.checkpoint.layer_transfer import take_layers
from tfps.checkpoint.restore import KEEP_NUMBERS, differences, read_parameters
from tfps.checkpoint.table_growth import grown_tables, log_new_rows
from tfps.errors import UserError
from tfps.experiment.experiment import Train
from tfps.model.numberings import Numbering, renumbered
from tfps.store.parameter_store import ParameterStore

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """A checkpoint of another job, with which a job begins that has none of its own.

    The other job is only read. It may be running: of its directory the newest checkpoint is taken
    that is there and whole by then.

    Attributes:
        path: The other job's directory, for its newest checkpoint; or a checkpoint's.
        layers: Names, paths or patterns of the layers whose parameters are taken, with new slots;
            empty for everything, slots and the number of updates included.
    """

    path: str
    layers: tuple[str, ...] = ()

    @classmethod
    def of(cls, train: Train) -> "WarmStart | None":
        """What an experiment begins with; None for its initial values."""
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
        """Holds the checkpoint against the parameters of a run, without reading values."""
        self._use_newest(lambda checkpoint: self._fit(checkpoint, signature, numberings or {}))

    def begin(self, store: ParameterStore) -> Checkpoint:
        """Reads what is taken into a store that was not trained yet."""

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
        self,
        checkpoint: Checkpoint,
        ours: Mapping[str, Any],
        numberings: Mapping[str, Numbering],
    ) -> LayerSelection | None:
        """Which layers are taken; None for everything."""
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
        """Uses the newest checkpoint that is whole; of a job that runs, they come and go."""
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
        """The newest committed checkpoint now, without those that something is wrong with."""
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
