"""Rows of files become a dataset, or several: what `trainer.prepare` does."""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import contextlib
import dataclasses
import functools
import posixpath
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from absl import flags

from tfps import byte_size
from tfps.data.dataset_writer import DatasetWriter, Frames, split
from tfps.data.examples import CountsSum
from tfps.data.manifest import Manifest
from tfps.data.named_columns import converted
from tfps.data.record_order import describe_room, scratch_for, whole_shuffle
from tfps.data.schema import Schema
from tfps.errors import UserError, listed
from tfps.experiment.experiment import Experiment
from tfps.storage import files, objects
from tfps.storage.objects import Use
from trainer.console import file_progress
from trainer.console.file_progress import FileProgress
from trainer.console.inspection_text import counted, say_counts, warn_of_sorted
from trainer.datasets import data_files, row_encoding
from trainer.datasets.dataset_parts import Part, parse_split, write_parts
from trainer.datasets.row_encoding import BadRows, ConfiguredExperiment, EncodedRows, RowFile
from trainer.datasets.row_layout import RowLayout
from trainer.datasets.shard_scan import Processes, worthwhile
from trainer.flags import experiment_flags, shuffle_flags


@dataclasses.dataclass(frozen=True)
class Output:
    """A dataset to write, or one for each part of a split, in a subdirectory of its name."""

    directory: str
    shards: int  # of each dataset
    name: str = ""  # the experiment's by default
    overwrite: bool = False
    split: Mapping[str, float] = dataclasses.field(default_factory=dict)  # shares of the records

    def open(self, stack: contextlib.ExitStack, name: str, schema: Schema) -> list[Part]:
        """The datasets, open as long as the stack."""
        shares = {posixpath.join(self.directory, part): x for part, x in self.split.items()}
        return [
            Part(stack.enter_context(self._writer(directory, name, schema)), share)
            for directory, share in (shares or {self.directory: 1.0}).items()
        ]

    def _writer(self, directory: str, name: str, schema: Schema) -> DatasetWriter:
        return DatasetWriter.open(directory, self.name or name, self.shards, schema, self.overwrite)


def prepare(
    get_experiment: Callable[[], Experiment],
    inputs: Sequence[str],
    output: Output,
    keep: tuple[str, ...] = (),
    max_bad_rows: int = 0,
    processes: int = 1,
    seed: int = 0,
    shuffle: bool = False,
) -> list[Manifest]:
    """Writes all rows; records keep the order of the rows unless they are shuffled.

    With several processes `get_experiment` is pickled, and called in each.
    """
    experiment = get_experiment()
    task = experiment.task
    layout = RowLayout.of(task, keep)
    sources = [RowFile.of(path, layout) for path in inputs]
    in_turn = not (shuffle or output.split)  # else records are dealt out afterwards
    encode = functools.partial(
        row_encoding.encode,
        experiment=get_experiment,
        keep=keep,
        shards=output.shards if in_turn else 1,
    )
    bad_rows = BadRows(max_bad_rows)
    with contextlib.ExitStack() as stack:
        parts = output.open(stack, experiment.name, task.schema())
        pool = stack.enter_context(Processes(processes, row_encoding.__name__, "keras"))
        progress = stack.enter_context(file_progress.shown(_size(inputs)))
        encoded = pool.map(encode, (block for source in sources for block in source.blocks()))
        dealt = _good_rows(encoded, task.schema(), bad_rows, progress, parts[0].counts)
        if in_turn:
            for some in dealt:
                parts[0].writer.write_in_turn(some)
        else:
            records: Iterator[bytes] = (record for [frames] in dealt for record in split(*frames))
            if shuffle:
                records = whole_shuffle(records, seed, scratch_for(output.directory))
            write_parts(records, parts, task.schema(), seed)
        for part in parts:
            if not part.writer.records:
                _refuse_empty(part, inputs)
        return [part.writer.finish(bad_rows.count, counts=part.counts.total) for part in parts]


def _refuse_empty(part: Part, inputs: Sequence[str]) -> NoReturn:
    what = f"no row fell to {part.writer.directory}" if part.share < 1 else "no row could be used"
    raise UserError(f"--input={','.join(inputs)}: {what}")


def _good_rows(
    blocks: Iterable[EncodedRows],
    schema: Schema,
    bad_rows: BadRows,
    progress: FileProgress,
    counts: CountsSum,
) -> Iterator[list[Frames]]:
    """The records of blocks as they are dealt to the shards; counts them, and shows progress."""
    count = 0
    for encoded in blocks:
        encoded.account(schema, bad_rows, counts, progress.write)
        if encoded.count:
            yield encoded.frames
        count += encoded.count
        progress.add(encoded.size, f"{count:,} rows")


def _size(inputs: Sequence[str]) -> int:
    """Bytes of all files; those that are missing are refused when it is their turn."""
    return sum(files.size(path) for path in inputs if files.exists(path))


def run() -> None:
    values = flags.FLAGS
    started = time.monotonic()
    uses = [Use("--input", path) for path in values.input]
    objects.check([*uses, Use("--output", values.output, writes=True)])
    inputs = [path for each in values.input for path in data_files.find(each, "--input")]
    is_shuffled = shuffle_flags.seed() is not None
    if is_shuffled and (room := describe_room(values.output, _size(inputs))):
        sys.stderr.write(f"{room}\n")
    configured = ConfiguredExperiment(
        values.config, experiment_flags.fields(), values.without_labels
    )
    written = prepare(
        configured,
        inputs,
        Output(
            values.output, values.shards, values.name, values.overwrite, parse_split(values.split)
        ),
        keep=tuple(values.keep),
        max_bad_rows=values.max_bad_rows,
        processes=worthwhile(values.processes, _size(inputs)),
        seed=values.shuffle_seed,
        shuffle=is_shuffled,
    )
    for dataset in written:
        _say(dataset)
    task = configured().task
    if names := converted(task.rows(), task.features()):
        sys.stdout.write(
            f"rows() converts {listed(names)}: the exported model, and a server with it, takes the "
            "converted values. What Keras layers convert, they take raw\n"
        )
    sys.stdout.write(
        f"{written[0].rejected_rows} bad rows left out, {time.monotonic() - started:.1f} s\n"
    )


def _say(dataset: Manifest) -> None:
    empty = sum(shard.records == 0 for shard in dataset.shards)
    sys.stdout.write(
        f"{dataset.name}: {dataset.records:,} records in {counted(len(dataset.shards), 'shard')}"
        f"{f', {empty} of them empty' if empty else ''} ({byte_size.show(dataset.bytes)})\n"
        f"dataset: {dataset.directory}\n"
    )
    say_counts(dataset, Schema.of(dataset))
    warn_of_sorted(dataset, "--shuffle=whole")
