"""What a checkpoint is: its files, what it holds, and on what it is based."""

import contextlib
import dataclasses
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tfps.checkpoint.keyed_snapshot import KeyedSnapshot
from tfps.cluster.failures import first_line, lost_ps_behind
from tfps.errors import RunError
from tfps.leases.queue import QueueState
from tfps.storage import files
from tfps.storage.failures import GO_ON, StorageError, explain
from tfps.store.parameter_store import ParameterStore

PREFIX = "parameters"
_INDEX = f"{PREFIX}.index"
_VALUES = re.compile(rf"{PREFIX}\.data-\d{{5,}}-of-(\d{{5,}})")


@dataclasses.dataclass(frozen=True)
class TrainedEpoch:
    """What the training of an epoch came to."""

    number: int  # from 0
    steps: int
    loss: float
    seconds: float = 0.0  # without checkpoints and evaluations


@dataclasses.dataclass(frozen=True)
class TrainingLosses:
    """The loss of each trained epoch, and the sums of the epoch being trained."""

    epochs: tuple[TrainedEpoch, ...] = ()  # in order
    loss_sum: float = 0.0
    records: int = 0
    seconds: float = 0.0

    def trained(self, loss_sum: float, records: int, seconds: float) -> "TrainingLosses":
        return dataclasses.replace(
            self,
            loss_sum=self.loss_sum + loss_sum,
            records=self.records + records,
            seconds=self.seconds + seconds,
        )

    def ended(self, number: int, steps: int) -> "TrainingLosses":
        loss = self.loss_sum / self.records if self.records else 0.0
        return TrainingLosses((*self.epochs, TrainedEpoch(number, steps, loss, self.seconds)))


NO_LOSSES = TrainingLosses()


class DamagedCheckpointError(Exception):
    """A file of a checkpoint is missing, truncated or altered; the message says which and how.

    It is no fault of the user, unlike a checkpoint that does not fit: the one before it may do.
    """


@contextlib.contextmanager
def explain_failures(what: str, hint: str = "") -> Iterator[None]:
    """Turns errors of the storage, and the ps's of it, into a `RunError`; a lost ps stays one."""
    try:
        yield
    except StorageError as error:  # it says itself that the run can resume
        raise RunError(f"{what}: {error}" + (f"; {hint}" if hint else "")) from None
    except FileNotFoundError as error:
        raise RunError(
            f"{what}: {error.filename} is gone; another chief may have begun; {hint or GO_ON}"
        ) from None
    except tf.errors.OpError as error:
        if lost_ps_behind(error):
            raise
        raise RunError(f"{what} ({first_line(error)}); {hint or GO_ON}") from None


@dataclasses.dataclass(frozen=True)
class CheckpointFile:
    """A file that the ps wrote, or the index that joins them.

    The index has a checksum of every slice of the others, which TensorFlow compares as it reads
    them: a checksum of the small index is enough for all, and no value is read twice.
    """

    name: str
    size: int  # bytes
    crc32c: str | None  # of the index; None for files of values

    @classmethod
    def all_in(cls, directory: str) -> tuple["CheckpointFile", ...]:
        found = [(name, _VALUES.fullmatch(name)) for name in files.names(directory)]
        values = [(name, int(match[1])) for name, match in found if match]
        names = [_INDEX, *(name for name, _ in values)]
        if not values or any(count != len(values) for _, count in values):
            wanted = f"instead of {values[0][1]}" if values else "next to its index"
            raise StorageError(
                f"{directory} has {len(values)} files of values {wanted}; {GO_ON}", may_pass=True
            )
        return tuple(cls._of(posixpath.join(directory, name)) for name in sorted(names))

    @classmethod
    def _of(cls, path: str) -> "CheckpointFile":
        try:
            crc32c = files.checksum_of(files.read(path)) if path.endswith(_INDEX) else None
            return cls(posixpath.basename(path), files.size(path), crc32c)
        except FileNotFoundError as error:
            raise explain(error, "read", path) from None

    def check(self, directory: str) -> None:
        """Compares the file on disk with this description, without reading values."""
        path = posixpath.join(directory, self.name)
        try:
            size = files.size(path)
            index = files.read(path) if self.crc32c is not None else b""
        except FileNotFoundError:
            raise DamagedCheckpointError(f"{self.name} is missing") from None
        if size != self.size:
            raise DamagedCheckpointError(f"{self.name} has {size:,} bytes instead of {self.size:,}")
        if self.crc32c is not None and files.checksum_of(index) != self.crc32c:
            raise DamagedCheckpointError(f"{self.name} was altered: its checksum differs")


@dataclasses.dataclass(frozen=True)
class Base:
    """A full checkpoint that increments build on."""

    name: str
    saved_at: float

    @property
    def steps(self) -> int:
        return int(self.name.split("-")[0])


@dataclasses.dataclass(frozen=True)
class RowRun:
    """A range of rows in a group of tables, with some rows in an increment."""

    tensor: str
    first: int
    end: int  # after the last
    touched: int


@dataclasses.dataclass(frozen=True)
class Increment:
    """The part of a checkpoint that differs from a full one."""

    base: Base
    tensors: tuple[str, ...]  # groups that hold touched rows only
    # by group, in the order of its rows; none for tables without vocabularies, which are searched
    # by the hashes of their keys
    runs: tuple[RowRun, ...]
    before: Base | None = None  # the one before the base, if it holds what has changed since that

    @property
    def since(self) -> Base:
        """The full checkpoint since which it holds all changes."""
        return self.before or self.base

    def offsets(self, tensor: str) -> list[tuple[int, RowRun]]:
        """The runs of a group, each with the number of touched rows before it."""
        found, before = [], 0
        for run in self.runs:
            if run.tensor == tensor:
                found.append((before, run))
                before += run.touched
        return found

    def touched(self, tensor: str) -> int:
        return sum(run.touched for run in self.runs if run.tensor == tensor)


def numbers_name(tensor: str) -> str:
    """The tensor of the touched rows' numbers, `[touched]` int64, ascending."""
    return f"{tensor}/touched"


def values_name(tensor: str) -> str:
    """The tensor of their values and slots, `[touched, width]`."""
    return f"{tensor}/touched/values"


def slice_specs(touched: int, width: int, first: int, count: int) -> tuple[str, str]:
    """A run of the two tensors, for `tf.raw_ops.SaveV2` and `RestoreV2`."""
    return f"{touched} {first},{count}", f"{touched} {width} {first},{count}:-"


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """A consistent state of parameters and leases."""

    steps: int
    queue: QueueState
    # identities of the training data of the first epoch, the second, …; then from the front again
    datasets: tuple[dict[str, Any], ...]
    signature: dict[str, Any]  # must be equal for the parameters to fit
    optimizers: dict[str, Any]  # by group of tables whose rows catch up with updates
    increment: Increment | None = None  # None for all of everything
    losses: TrainingLosses = NO_LOSSES
    # as of `LearningRates.changes`; none where the chief may set none
    learning_rates: tuple[tuple[int, float], ...] = ()
    # `Numbering.summary` by the layer's path
    numberings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint(State):
    """The content of a commit marker."""

    path: str
    saved_at: float  # of the commit, seconds since 1970
    files: tuple[CheckpointFile, ...]

    @property
    def name(self) -> str:
        """The name of its directory; names sort in the order of training."""
        return posixpath.basename(self.path)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def base(self) -> Base:
        """The full checkpoint that it needs, or is."""
        return self.increment.base if self.increment else Base(self.name, self.saved_at)

    @property
    def base_path(self) -> str:
        return posixpath.join(posixpath.dirname(self.path), self.base.name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft(State):
    """A state that is not written yet."""

    keyed: KeyedSnapshot | None = None  # what to write of tables without vocabularies

    @classmethod
    def of(
        cls,
        store: ParameterStore,
        queue: QueueState,
        datasets: tuple[dict[str, Any], ...],
        increment: Increment | None = None,
        losses: TrainingLosses = NO_LOSSES,
    ) -> "Draft":
        """The state now, while no worker changes the parameters."""
        rates = tuple(store.learning_rates.changes) if store.learning_rates else ()
        since = dict.fromkeys(increment.tensors, increment.since.steps) if increment else {}
        return cls(
            steps=store.steps(),
            queue=queue,
            datasets=datasets,
            signature=store.signature(),
            optimizers=store.layout.optimizers(),
            increment=increment,
            losses=losses,
            learning_rates=rates,
            numberings={path: each.summary for path, each in store.layout.numberings.items()},
            keyed=KeyedSnapshot.of(store, since),
        )

    @property
    def name(self) -> str:
        # Steps alone name no state: those that the loss scale skips change no parameter.
        return f"{self.steps:012d}-{self.queue.epoch:06d}-{self.queue.cursor:012d}"
