"""Turns CSV or TSV rows into TFRecord shards with a manifest.

    python -m trainer.prepare --config=configs/census.py --input=adult.data --output=DIR --shards=8

Rows are dealt to the shards in turn, so shards hold equally many records, but for one. More shards
than rows leaves some of them empty.
"""

import trainer.quiet_tensorflow  # noqa: F401  # isort: skip

import sys
import time
from collections.abc import Sequence

from absl import flags
from tqdm import tqdm

from tfps import config, examples, overrides, storage_preflight
from tfps.dataset_writer import DatasetWriter
from tfps.errors import UserError
from tfps.experiment import Experiment
from tfps.manifest import Manifest
from tfps.rows import BadRow
from tfps.storage_preflight import Use
from trainer import entry

_SHOWN_BAD_ROWS = 5


class _BadRows:
    """Counts bad rows and stops at one too many."""

    def __init__(self, allowed: int) -> None:
        self.count = 0
        self._allowed = allowed

    def __call__(self, bad: BadRow) -> None:
        self.count += 1
        if self.count > self._allowed:
            raise UserError(
                f"{bad}; mend the row, or leave bad rows out with --max_bad_rows={self.count} or "
                "more"
            )
        if self.count <= _SHOWN_BAD_ROWS:
            tqdm.write(f"left out: {bad}", file=sys.stderr)


def prepare(
    experiment: Experiment,
    inputs: Sequence[str],
    output: str,
    shards: int,
    max_bad_rows: int = 0,
    name: str = "",
    overwrite: bool = False,
) -> Manifest:
    """Writes a dataset of all rows.

    Args:
        experiment: Whose task says how a row becomes a record.
        inputs: Files of rows, read in this order.
        output: Directory of the dataset.
        shards: Number of shards.
        max_bad_rows: How many bad rows may be left out.
        name: Prefix of the shards; the experiment's name when empty.
        overwrite: Replaces a dataset that is in the directory.

    Returns:
        The dataset's manifest.

    Raises:
        UserError: If an input cannot be read or has too many bad rows, there is no row at all, or
            the output cannot be written.
    """
    task = experiment.task
    features, labels = task.features(), task.labels()
    row_format = task.rows().only([feature.name for feature in (*features, *labels)])
    bad_rows = _BadRows(max_bad_rows)
    written = 0
    with (
        DatasetWriter(output, name or experiment.name, shards, task, overwrite) as writer,
        tqdm(unit=" rows", disable=None, leave=False) as progress,
    ):
        for path in inputs:
            for line, values in row_format.read(path, bad_rows):
                try:
                    record = examples.encode(values, features, labels)
                except UserError as error:
                    bad_rows(BadRow(f"{path} line {line}: {error}"))
                    continue
                writer.write(written % shards, record)
                written += 1
                progress.update()
        if not written:
            raise UserError(f"--input={','.join(inputs)} holds no row that could be used")
        return writer.finish(rejected_rows=bad_rows.count)


def main() -> None:
    """Prepares what the flags name and prints a summary."""
    values = flags.FLAGS
    started = time.monotonic()
    experiment = overrides.apply(config.load(values.config), values.set)
    inputs = [Use("--input", path) for path in values.input]
    storage_preflight.check([*inputs, Use("--output", values.output, writes=True)])
    dataset = prepare(
        experiment,
        inputs=values.input,
        output=values.output,
        shards=values.shards,
        max_bad_rows=values.max_bad_rows,
        name=values.name,
        overwrite=values.overwrite,
    )
    empty = sum(shard.records == 0 for shard in dataset.shards)
    sys.stdout.write(
        f"{dataset.name}: {dataset.records:,} records in {len(dataset.shards)} shards"
        f"{f', {empty} of them empty' if empty else ''} ({dataset.bytes / 1e6:.1f} MB), "
        f"{dataset.rejected_rows} bad rows left out, {time.monotonic() - started:.1f} s\n"
        f"dataset: {dataset.directory}\n"
    )


def _define_flags() -> None:
    flags.DEFINE_string("config", None, "Config file or module.", required=True)
    flags.DEFINE_multi_string("set", [], "Override of a config's field: task.mlp=64,32.")
    flags.DEFINE_list("input", None, "Files of rows; gzip when they end in .gz.", required=True)
    flags.DEFINE_string("output", None, "Directory of the dataset.", required=True)
    flags.DEFINE_integer("shards", None, "Number of shards.", lower_bound=1, required=True)
    flags.DEFINE_integer("max_bad_rows", 0, "Bad rows that may be left out.", lower_bound=0)
    flags.DEFINE_string("name", "", "Prefix of the shards; the experiment's name by default.")
    flags.DEFINE_boolean("overwrite", False, "Replace a dataset in the output directory.")


if __name__ == "__main__":
    _define_flags()
    entry.run(main)
