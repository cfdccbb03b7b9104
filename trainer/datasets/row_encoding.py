"""Turns a block of rows into records, in a process of its own or in this one."""

import dataclasses
import functools
import gc
from collections.abc import Callable, Iterator
from typing import NoReturn

import keras

from tfps.data import examples
from tfps.data.dataset_writer import Frames, deal
from tfps.data.example_encoder import RecordEncoder
from tfps.data.feature import Feature
from tfps.data.parquet import ParquetBlock
from tfps.data.row_blocks import RowBlock
from tfps.data.row_format import BadRow, RowFormat
from tfps.data.tfrecord import frame
from tfps.data.value_counts import Counts, count_records
from tfps.errors import UserError
from tfps.experiment import overrides
from tfps.experiment.experiment import Experiment
from tfps.experiment.task import Task

Block = RowBlock | ParquetBlock


class UnlabelledTask(Task):
    """Reads and writes the records of another task without its labels, weight and group.

    It has no model: it is for datasets that are to be predicted.
    """

    def __init__(self, task: Task):
        self._task = task

    def features(self) -> tuple[Feature, ...]:
        """Those of the task."""
        return self._task.features()

    def label(self) -> tuple[Feature, ...]:
        """None."""
        return ()

    def rows(self) -> RowFormat:
        """Those of the task without the columns that are for labels alone."""
        names = [each.name for each in self._task.labels()]
        return self._task.rows().without(names)

    def build_model(self) -> NoReturn:
        """There is none."""
        raise TypeError("records without labels are predicted, not trained")

    def optimizer(self) -> keras.optimizers.Optimizer:
        """That of the task."""
        return self._task.optimizer()


@dataclasses.dataclass(frozen=True)
class ConfiguredExperiment:
    """An experiment by its config, as another process can load it."""

    config: str
    overrides: tuple[str, ...] = ()
    without_labels: bool = False

    def __call__(self) -> Experiment:
        """Loads the experiment."""
        found = overrides.apply(overrides.load(self.config), self.overrides)
        if self.without_labels:
            return dataclasses.replace(found, task=UnlabelledTask(found.task))
        return found


@dataclasses.dataclass(frozen=True)
class EncodedRows:
    """The records of a block of rows, dealt to the shards in turn."""

    frames: list[Frames]
    count: int
    bad_rows: list[str]
    counts: Counts
    size: int


def encode(block: Block, experiment: Callable[[], Experiment], shards: int) -> EncodedRows:
    """Reads a block's rows as an experiment's task says.

    Args:
        experiment: Gives the experiment; it is called once in a process.
    """
    records, bad_rows, counts = _encoder(experiment).records(block)
    framed = list(map(frame, records))
    return EncodedRows(deal(framed, shards), len(framed), bad_rows, counts, block.size)


def format_of(experiment: Experiment) -> RowFormat:
    """How the rows are laid out that become an experiment's records."""
    task = experiment.task
    names = [feature.name for feature in task.schema().all]
    return task.rows().only(names)


@functools.lru_cache(maxsize=1)
def _encoder(experiment: Callable[[], Experiment]) -> "_Encoder":
    encoder = _Encoder(experiment())
    # Rows are many lists: the collector is to look at them without all that TensorFlow holds.
    gc.freeze()
    return encoder


class _Encoder:
    def __init__(self, experiment: Experiment):
        task = experiment.task
        self._features, self._labels = task.features(), task.labels()
        self._format = format_of(experiment)
        self._encoder = RecordEncoder((*self._features, *self._labels))

    def records(self, block: Block) -> tuple[list[bytes], list[str], Counts]:
        """The records of good rows, what is wrong with the others, and the records' counts."""
        try:
            count, columns = block.columns(self._format)
            if not count:
                return [], [], {}
            return self._encoder.encode(columns), [], self._encoder.counts
        except (TypeError, ValueError):  # the rows one by one tell what it is, and in which
            bad_rows: list[str] = []
            records = list(self._one_by_one(block, bad_rows))
            return records, bad_rows, count_records(records, (*self._features, *self._labels))

    def _one_by_one(self, block: Block, bad_rows: list[str]) -> Iterator[bytes]:
        def leave_out(bad: BadRow) -> None:
            bad_rows.append(str(bad))

        for number, values in block.rows(self._format, leave_out):
            try:
                yield examples.encode(values, self._features, self._labels)
            except UserError as error:
                bad_rows.append(f"{block.where(number)}: {error}")
