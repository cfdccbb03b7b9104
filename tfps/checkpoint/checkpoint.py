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
from tfps.storage import checksum, files
from tfps.storage.failures import StorageError, explain
from tfps.store.parameter_store import ParameterStore
from tfps.store.run_state import Changes

_GO_ON = "when the storage answers again, the same command goes on from the last checkpoint"
PREFIX = "parameters"
_INDEX = f"{PREFIX}.index"
_VALUES = re.compile(rf"{PREFIX}\.data-\d{{5,}}-of-(\d{{5,}})")


@dataclasses.dataclass(frozen=True)
class TrainedEpoch:
    """What the training of an epoch came to.

    Attributes:
        number: The epoch, from 0.
        seconds: What its training took, checkpoints and evaluations left out; 0 where it was not
            kept.
    """

    number: int
    steps: int
    loss: float
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class TrainingLosses:
    """The loss of each epoch that was trained, and what there is of the one being trained.

    Attributes:
        epochs: The epochs, in their order; without those of before losses were kept.
    """

    epochs: tuple[TrainedEpoch, ...] = ()
    loss_sum: float = 0.0
    records: int = 0
    seconds: float = 0.0

    def trained(self, loss_sum: float, records: int, seconds: float) -> "TrainingLosses":
        """The losses after some more records of the epoch."""
        return dataclasses.replace(
            self,
            loss_sum=self.loss_sum + loss_sum,
            records=self.records + records,
            seconds=self.seconds + seconds,
        )

    def ended(self, number: int, steps: int) -> "TrainingLosses":
        """The losses at the end of an epoch.

        Args:
            number: The epoch, from 0.
        """
        loss = self.loss_sum / self.records if self.records else 0.0
        return TrainingLosses((*self.epochs, TrainedEpoch(number, steps, loss, self.seconds)))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "TrainingLosses":
        """From what `dataclasses.asdict` gave."""
        epochs = tuple(TrainedEpoch(**epoch) for epoch in data["epochs"])
        return cls(epochs, data["loss_sum"], data["records"], data.get("seconds", 0.0))


NO_LOSSES = TrainingLosses()


class DamagedCheckpointError(Exception):
    """A file of a checkpoint is missing, truncated or altered; the message names it and says how.

    Unlike a checkpoint that does not fit the run, it is no fault of whoever started the run: the
    checkpoint before it may do.
    """


@contextlib.contextmanager
def explain_failures(what: str, hint: str = "") -> Iterator[None]:
    """Makes errors of the storage a `RunError` that says what they prevented.

    TensorFlow's are those of the ps, too; that of a lost ps stays what it is.

    Args:
        hint: What a person can do about it, or needs to know; empty where the same command goes on
            once the storage answers.
    """
    try:
        yield
    except StorageError as error:  # it says itself that the run can go on
        raise RunError(f"{what}: {error}" + (f"; {hint}" if hint else "")) from None
    except FileNotFoundError as error:
        raise RunError(
            f"{what}: {error.filename} is gone; another chief may have begun; {hint or _GO_ON}"
        ) from None
    except tf.errors.OpError as error:
        if lost_ps_behind(error):
            raise
        raise RunError(f"{what} ({first_line(error)}); {hint or _GO_ON}") from None


@dataclasses.dataclass(frozen=True)
class CheckpointFile:
    """A file that the ps wrote, or the index that joins them.

    The index holds a checksum of every slice of the others, which TensorFlow compares as it reads
    them. So a checksum of the small index is enough for all: none of the values is read twice.

    Attributes:
        size: Bytes.
        crc32c: Checksum of the index; None for files of values.
    """

    name: str
    size: int
    crc32c: str | None

    @classmethod
    def all_in(cls, directory: str) -> tuple["CheckpointFile", ...]:
        """The files of a checkpoint that was just written."""
        found = [(name, _VALUES.fullmatch(name)) for name in files.names(directory)]
        values = [(name, int(match[1])) for name, match in found if match]
        names = [_INDEX, *(name for name, _ in values)]
        if not values or any(count != len(values) for _, count in values):
            wanted = f"instead of {values[0][1]}" if values else "beside its index"
            raise StorageError(
                f"{directory} has {len(values)} files of values {wanted}; when "
                "the storage answers again, the same command goes on from the last checkpoint",
                may_pass=True,
            )
        return tuple(cls._of(posixpath.join(directory, name)) for name in sorted(names))

    @classmethod
    def _of(cls, path: str) -> "CheckpointFile":
        try:
            crc32c = checksum.of_bytes(files.read(path)) if path.endswith(_INDEX) else None
            return cls(posixpath.basename(path), files.size(path), crc32c)
        except FileNotFoundError as error:
            raise explain(error, "read", path) from None

    def check(self, directory: str) -> None:
        """Holds what is on disk against the description, without reading values."""
        path = posixpath.join(directory, self.name)
        try:
            size = files.size(path)
            index = files.read(path) if self.crc32c is not None else b""
        except FileNotFoundError:
            raise DamagedCheckpointError(f"{self.name} is missing") from None
        if size != self.size:
            raise DamagedCheckpointError(f"{self.name} has {size:,} bytes instead of {self.size:,}")
        if self.crc32c is not None and checksum.of_bytes(index) != self.crc32c:
            raise DamagedCheckpointError(f"{self.name} was altered: its checksum differs")


@dataclasses.dataclass(frozen=True)
class Base:
    """A full checkpoint that increments build on."""

    name: str
    saved_at: float

    @property
    def steps(self) -> int:
        """Updates of the parameters that it holds, with which its name begins."""
        return int(self.name.split("-")[0])


@dataclasses.dataclass(frozen=True)
class RowRun:
    """Rows of a group of tables of which an increment holds some.

    Attributes:
        end: The row after the last.
    """

    tensor: str
    first: int
    end: int
    touched: int


@dataclasses.dataclass(frozen=True)
class Increment:
    """The part of a checkpoint in which it differs from a full one.

    Attributes:
        tensors: Names of the groups of which only rows touched since then are held.
        runs: Where those rows are: for each group in the order of its rows. None for groups of
            tables without vocabularies, whose rows are found by the hashes of their keys.
    """

    base: Base
    tensors: tuple[str, ...]
    runs: tuple[RowRun, ...]

    def offsets(self, tensor: str) -> list[tuple[int, RowRun]]:
        """The runs of a group, each with the number of touched rows before it."""
        found, before = [], 0
        for run in self.runs:
            if run.tensor == tensor:
                found.append((before, run))
                before += run.touched
        return found

    def touched(self, tensor: str) -> int:
        """How many rows of a group are held."""
        return sum(run.touched for run in self.runs if run.tensor == tensor)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Increment":
        """From what `dataclasses.asdict` gave."""
        runs = tuple(RowRun(**run) for run in data["runs"])
        return cls(Base(**data["base"]), tuple(data["tensors"]), runs)


def numbers_name(tensor: str) -> str:
    """Name of the tensor that holds the touched rows' numbers, `[touched]` int64, ascending."""
    return f"{tensor}/touched"


def values_name(tensor: str) -> str:
    """Name of the tensor that holds their values and slots, `[touched, width]`."""
    return f"{tensor}/touched/values"


def slice_specs(touched: int, width: int, first: int, count: int) -> tuple[str, str]:
    """A run of the two tensors as `tf.raw_ops.SaveV2` and `RestoreV2` want it."""
    return f"{touched} {first},{count}", f"{touched} {width} {first},{count}:-"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a commit marker says.

    Attributes:
        datasets: Identities of the training data that the lease state speaks of: of the first
            epoch's, the second's and so on; later epochs begin at its front again.
        signature: What must be equal for the parameters to fit.
        optimizers: Of each group of tables whose rows make up for updates, how; by its name. Empty
            in checkpoints that were saved before it was kept.
        increment: Where rows that it does not hold are; None for a full checkpoint.
        saved_at: When it was committed, seconds since 1970.
        learning_rates: Those that the chief has set, as `LearningRates.changes` gives them; none
            where it may not.
        numberings: The `summary` of each `Numbering` of the model, by its layer's path; empty in
            checkpoints that were saved before it was kept.
    """

    path: str
    steps: int
    queue: QueueState
    datasets: tuple[dict[str, Any], ...]
    signature: dict[str, Any]
    optimizers: dict[str, Any]
    increment: Increment | None
    saved_at: float
    files: tuple[CheckpointFile, ...]
    losses: TrainingLosses = NO_LOSSES
    learning_rates: Changes = ()
    numberings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its directory's name; names sort in the order of the training."""
        return posixpath.basename(self.path)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def base(self) -> Base:
        """The full checkpoint that it needs, or is."""
        return self.increment.base if self.increment else Base(self.name, self.saved_at)

    @property
    def base_path(self) -> str:
        """Directory of the full checkpoint that it needs, or is."""
        return posixpath.join(posixpath.dirname(self.path), self.base.name)


@dataclasses.dataclass(frozen=True)
class Draft:
    """A state of the parameters and the leases that belongs together, not written yet.

    Attributes:
        signature: What must be equal for the parameters to fit.
        increment: What to write of the tables; None for all of everything.
        keyed: What to write of tables without vocabularies; None where there are none.
    """

    steps: int
    queue: QueueState
    datasets: tuple[dict[str, Any], ...]
    signature: dict[str, Any]
    optimizers: dict[str, Any]
    increment: Increment | None = None
    losses: TrainingLosses = NO_LOSSES
    learning_rates: Changes = ()
    numberings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    keyed: KeyedSnapshot | None = None

    @classmethod
    def of(
        cls,
        store: ParameterStore,
        queue: QueueState,
        datasets: tuple[dict[str, Any], ...],
        increment: Increment | None = None,
        losses: TrainingLosses = NO_LOSSES,
    ) -> "Draft":
        """What there is now, while no worker is changing the parameters."""
        rates = store.learning_rates.changes if store.learning_rates else ()
        since = dict.fromkeys(increment.tensors, increment.base.steps) if increment else {}
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
        """Names the state, later ones behind earlier ones."""
        # Steps alone name no state: those that the loss scale skips change no parameter.
        return f"{self.steps:012d}-{self.queue.epoch:06d}-{self.queue.cursor:012d}"
