"""Files of rows, text or Parquet, and the records that their rows become."""

import dataclasses
import functools
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, Self

import keras

from tfps.data import examples, parquet
from tfps.data.dataset_writer import Frames, deal
from tfps.data.example_encoder import RecordEncoder
from tfps.data.examples import Counts, CountsSum, count_records
from tfps.data.feature import Feature
from tfps.data.row_blocks import Header, row_blocks
from tfps.data.row_format import BadRow, RowFormat, Values
from tfps.data.schema import Schema, default_hint, share
from tfps.data.tfrecord import frame
from tfps.errors import UserError
from tfps.experiment import overrides
from tfps.experiment.experiment import Experiment
from tfps.experiment.task import Task
from trainer.datasets.row_layout import Block, RowLayout


class UnlabelledTask(Task):
    """Records of another task to predict: without labels, weight and group, and without a model."""

    def __init__(self, task: Task):
        self._task = task

    def features(self) -> tuple[Feature, ...]:
        return self._task.features()

    def label(self) -> tuple[Feature, ...]:
        return ()

    def rows(self) -> RowFormat | None:
        """Those of the task without the columns that are for labels alone."""
        found = self._task.rows()
        if found is None or not found.columns:
            return found
        return found.without([each.name for each in self._task.labels()])

    def build_model(self) -> NoReturn:
        raise TypeError("records without labels are predicted, not trained")

    def optimizer(self) -> keras.optimizers.Optimizer:
        return self._task.optimizer()


@dataclasses.dataclass(frozen=True)
class ConfiguredExperiment:
    """An experiment by its config, as another process can load it."""

    config: str
    overrides: tuple[str, ...] = ()
    without_labels: bool = False

    def __call__(self) -> Experiment:
        found = overrides.apply(overrides.load(self.config), self.overrides)
        if self.without_labels:
            return dataclasses.replace(found, task=UnlabelledTask(found.task))
        return found


class BadRows:
    """Counts bad rows, and stops at one too many."""

    def __init__(self, allowed: int) -> None:
        self.count = 0
        self.allowed = allowed

    def add(self, bad: BadRow, way_out: str = "; fix the row") -> None:
        self.count += 1
        if self.count > self.allowed:
            raise UserError(
                f"{bad}{way_out}, or leave bad rows out with --max_bad_rows={self.count} or more"
            )


@dataclasses.dataclass(frozen=True)
class RowFile:
    """A file of rows, and where the values of a record are in them."""

    path: str
    row_format: RowFormat
    header: Header | None = None  # names the columns of a text file
    is_parquet: bool = False

    @classmethod
    def of(cls, path: str, layout: RowLayout) -> Self:
        """A file with the columns of a layout, which a text file's header must name."""
        if parquet.is_parquet(path):
            names = parquet.column_names(path)
            return cls(path, layout.of_columns(path, names), is_parquet=True)
        header = layout.header(path)
        return cls(path, layout.of_header(header), header)

    def blocks(self, others: Sequence[str] = (), most: int = parquet.BLOCK_ROWS) -> Iterator[Block]:
        """All rows in order; of a Parquet file with other columns, and `most` a block."""
        if self.is_parquet:
            return parquet.parquet_blocks(self.path, self.row_format, others, most)
        return row_blocks(self.path, self.row_format.delimiter, header=self.header)


def one_by_one(
    block: Block,
    row_format: RowFormat,
    features: Sequence[Feature],
    on_bad_row: Callable[[BadRow], None],
) -> Iterator[tuple[int, Values, bytes]]:
    """The good rows of a block: the number of each, its values by field name, and its record."""
    for number, values in block.rows(row_format, on_bad_row):
        try:
            yield number, values, examples.encode(values, features)
        except UserError as error:
            on_bad_row(BadRow(f"{block.where(number)}: {error}"))


_SHOWN_BAD_ROWS = 5  # of a dataset


@dataclasses.dataclass(frozen=True)
class EncodedRows:
    """The records of a block of rows, dealt to the shards in turn."""

    frames: list[Frames]
    count: int
    bad_rows: list[BadRow]
    counts: Counts
    size: int

    def account(
        self, schema: Schema, bad_rows: BadRows, counts: CountsSum, say: Callable[[str], object]
    ) -> None:
        """Counts bad rows, of which `say` names the first, and what the records hold."""
        for bad in self.bad_rows:
            bad_rows.add(bad, self.way_out(bad, schema))
            if bad_rows.count <= _SHOWN_BAD_ROWS:
                say(f"left out: {bad}")
        counts.add({each.name: self.counts[each.name] for each in schema.all if self.counts})

    def way_out(self, bad: BadRow, schema: Schema) -> str:
        """What to do about one of the bad rows, with the share of rows like it."""
        if not bad.empty_field:
            return "; fix the row"
        alike = sum(each.empty_field == bad.empty_field for each in self.bad_rows)
        rows = self.count + len(self.bad_rows)
        [feature] = [each for each in schema.all if each.name == bad.empty_field]
        instead = "fix the row" if feature in schema.labels else default_hint(feature)
        return f", as in {share(alike, rows)} of the rows read with it; {instead}"


def encode(
    block: Block, experiment: Callable[[], Experiment], keep: tuple[str, ...], shards: int
) -> EncodedRows:
    """Reads a block's rows as an experiment's task says; it is loaded once in a process."""
    records, bad_rows, counts = _encoder(experiment, keep).records(block)
    framed = list(map(frame, records))
    return EncodedRows(deal(framed, shards), len(framed), bad_rows, counts, block.size)


@functools.lru_cache(maxsize=1)
def _encoder(experiment: Callable[[], Experiment], keep: tuple[str, ...]) -> "_Encoder":
    encoder = _Encoder(RowLayout.of(experiment().task, keep))
    # Rows are many lists: the collector skips what TensorFlow holds.
    gc.freeze()
    return encoder


class _Encoder:
    def __init__(self, layout: RowLayout):
        self._layout = layout
        self._encoder = RecordEncoder(layout.all)

    def records(self, block: Block) -> tuple[list[bytes], list[BadRow], Counts]:
        """The records of good rows, what is wrong with the others, and the records' counts."""
        row_format = self._layout.of_block(block)
        try:
            count, columns = block.columns(row_format)
            if not count:
                return [], [], {}
            return self._encoder.encode(columns), [], self._encoder.counts
        except (TypeError, ValueError):  # which row it is, they say one by one
            bad: list[BadRow] = []
            rows = one_by_one(block, row_format, self._layout.all, bad.append)
            records = [record for _, _, record in rows]
            return records, bad, count_records(records, self._layout.all)
