"""Turns rows of CSV, TSV or Parquet files into TFRecord shards with a manifest.

    python -m trainer.prepare --config=configs/census.py --input=adult.data --output=DIR --shards=8

Rows are dealt to the shards in turn, so shards hold equally many records, but for one. More shards
than rows leaves some of them empty. Blocks of rows are read by several processes; the shards do not
depend on their number. Parquet files are recognised by their content; their columns, and those of a
text file whose first line names them, are used by the names that the task's `rows()` gives, in
whatever order they stand. In other text files they stand in the order of `rows()`.

`--shuffle=whole` writes the records in an order that is drawn over all of them.
"""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import functools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import tensorflow as tf
from absl import flags

from tfps import byte_size
from tfps.data.dataset_writer import DatasetWriter, Frames, split
from tfps.data.examples import CountsSum
from tfps.data.manifest import Manifest
from tfps.data.record_order import describe_room, scratch_for, whole_shuffle
from tfps.data.schema import Schema
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.storage import files, objects
from tfps.storage.objects import Use
from trainer import entry
from trainer.console import file_progress
from trainer.console.file_progress import FileProgress
from trainer.console.inspection_text import say_counts, warn_of_sorted
from trainer.datasets import data_files, row_encoding
from trainer.datasets.row_encoding import BadRows, ConfiguredExperiment, EncodedRows, RowFile
from trainer.datasets.shard_scan import Processes, worthwhile
from trainer.flags import experiment_flags, shuffle_flags

_SHOWN_BAD_ROWS = 5


def prepare(
    get_experiment: Callable[[], Experiment],
    inputs: Sequence[str],
    output: str,
    shards: int,
    max_bad_rows: int = 0,
    name: str = "",
    overwrite: bool = False,
    processes: int = 1,
    shuffle_seed: int | None = None,
) -> Manifest:
    """Writes a dataset of all rows; without a seed its records keep the order of the rows.

    With several processes `get_experiment` is pickled, and called in each.
    """
    experiment = get_experiment()
    task = experiment.task
    row_format = row_encoding.format_of(experiment)
    sources = [RowFile.of(path, row_format) for path in inputs]
    dealt_to = shards if shuffle_seed is None else 1  # shuffled ones are dealt out afterwards
    encode = functools.partial(row_encoding.encode, experiment=get_experiment, shards=dealt_to)
    bad_rows = BadRows(max_bad_rows)
    with (
        DatasetWriter.open(
            output, name or experiment.name, shards, task.schema(), overwrite
        ) as writer,
        Processes(processes, row_encoding.__name__, "keras") as pool,
        file_progress.shown(_size(inputs)) as progress,
    ):
        blocks = (block for source in sources for block in source.blocks())
        encoded = pool.map(encode, blocks)
        counts = CountsSum()
        dealt = _good_rows(encoded, bad_rows, progress, counts)
        if shuffle_seed is None:
            for some in dealt:
                writer.write_in_turn(some)
        else:
            records = (record for [frames] in dealt for record in split(*frames))
            writer.write_all_in_turn(whole_shuffle(records, shuffle_seed, scratch_for(output)))
        if not writer.records:
            raise UserError(f"--input={','.join(inputs)} holds no row that could be used")
        return writer.finish(rejected_rows=bad_rows.count, counts=counts.total)


def _good_rows(
    blocks: Iterable[EncodedRows], bad_rows: BadRows, progress: FileProgress, counts: CountsSum
) -> Iterator[list[Frames]]:
    """The records of blocks as they are dealt to the shards; counts them, and shows progress."""
    count = 0
    for encoded in blocks:
        for bad in encoded.bad_rows:
            bad_rows.add(bad)
            if bad_rows.count <= _SHOWN_BAD_ROWS:
                progress.write(f"left out: {bad}")
        if encoded.count:
            yield encoded.frames
        count += encoded.count
        counts.add(encoded.counts)
        progress.add(encoded.size, f"{count:,} rows")


def _size(inputs: Sequence[str]) -> int:
    """Bytes of all files; those that are missing are refused when it is their turn."""
    return sum(tf.io.gfile.stat(path).length for path in inputs if files.exists(path))


def main() -> None:
    values = flags.FLAGS
    started = time.monotonic()
    uses = [Use("--input", path) for path in values.input]
    objects.check([*uses, Use("--output", values.output, writes=True)])
    inputs = [path for each in values.input for path in data_files.find(each, "--input")]
    seed = shuffle_flags.seed()
    if seed is not None and (room := describe_room(values.output, _size(inputs))):
        sys.stderr.write(f"{room}\n")
    dataset = prepare(
        ConfiguredExperiment(values.config, experiment_flags.fields(), values.without_labels),
        inputs=inputs,
        output=values.output,
        shards=values.shards,
        max_bad_rows=values.max_bad_rows,
        name=values.name,
        overwrite=values.overwrite,
        processes=worthwhile(values.processes, _size(inputs)),
        shuffle_seed=seed,
    )
    empty = sum(shard.records == 0 for shard in dataset.shards)
    sys.stdout.write(
        f"{dataset.name}: {dataset.records:,} records in {len(dataset.shards)} shards"
        f"{f', {empty} of them empty' if empty else ''} ({byte_size.show(dataset.bytes)}), "
        f"{dataset.rejected_rows} bad rows left out, {time.monotonic() - started:.1f} s\n"
        f"dataset: {dataset.directory}\n"
    )
    say_counts(dataset, Schema.of(dataset))
    warn_of_sorted(dataset, "--shuffle=whole")


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.mark_flag_as_required("config")
    flags.DEFINE_list(
        "input",
        None,
        "Files of rows: CSV or TSV, also .gz, or Parquet; globs, or directories of them.",
        required=True,
    )
    flags.DEFINE_string("output", None, "Directory of the dataset.", required=True)
    flags.DEFINE_integer("shards", None, "Number of shards.", lower_bound=1, required=True)
    flags.DEFINE_integer("max_bad_rows", 0, "Bad rows that may be left out.", lower_bound=0)
    flags.DEFINE_string("name", "", "Prefix of the shards; the experiment's name by default.")
    flags.DEFINE_boolean("overwrite", False, "Replace a dataset in the output directory.")
    flags.DEFINE_boolean("without_labels", False, "The rows have no labels: to be predicted.")
    shuffle_flags.define()
    flags.DEFINE_integer(
        "processes", os.cpu_count() or 1, "How many turn rows into records.", lower_bound=1
    )


if __name__ == "__main__":
    _define_flags()
    entry.run(main, rewritten=experiment_flags.take)
