"""Writes records with a planted signal, for any config whose labels are binary.

    python -m trainer.generate --config=configs/criteo.py --records=500000 --shards=8 --output=DIR

It prints the AUC of the true log-odds on the labels that were written, the best a model can reach;
the manifest holds it too. Several labels have a signal each. Training and evaluation data come from
two runs with another `--seed` and the same `--signal_seed`.
"""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import math
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import flags

from tfps import byte_size
from tfps.data import examples
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.manifest import Manifest
from tfps.data.synthetic import PlantedSignal
from tfps.experiment import metrics
from tfps.experiment.experiment import Experiment
from tfps.storage import objects
from tfps.storage.objects import Use
from trainer import entry
from trainer.console import file_progress
from trainer.flags import experiment_flags

_BLOCK_RECORDS = 4096


def generate(
    experiment: Experiment,
    output: str,
    records: int,
    shards: int,
    seed: int = 0,
    signal_seed: int = 0,
    name: str = "",
    overwrite: bool = False,
) -> Manifest:
    """Writes a dataset of drawn records.

    Args:
        name: Prefix of the shards; the experiment's name when empty.

    Returns:
        The dataset's manifest, with the best AUC if there is a single label.
    """
    task = experiment.task
    features, labels = task.features(), task.labels()
    signals = [
        PlantedSignal(features, label, signal_seed + (index << 32))
        for index, label in enumerate(labels)
    ]
    all_logits, all_truth = [], []
    with (
        DatasetWriter.open(
            output, name or experiment.name, shards, task.schema(), overwrite
        ) as writer,
        file_progress.shown(records, "records") as progress,
    ):
        for shard in range(shards):
            generator = np.random.default_rng([seed, shard])
            for count in _blocks(records // shards + (shard < records % shards)):
                columns = signals[0].sample(generator, count)
                for signal, label in zip(signals, labels, strict=True):
                    logits = signal.logits(columns)
                    truth = signal.labels(generator, logits)
                    columns = {**columns, label.name: truth}
                    all_logits.append(logits)
                    all_truth.append(truth)
                for values in _records(columns):
                    writer.write(shard, examples.encode(values, features, labels))
                progress.add(count)
        if len(labels) > 1:
            return writer.finish()
        best_auc = metrics.auc(np.concatenate(all_truth), np.concatenate(all_logits))
        return writer.finish(best_auc=None if math.isnan(best_auc) else best_auc)


def main() -> None:
    """Generates what the flags name and prints a summary."""
    values = flags.FLAGS
    started = time.monotonic()
    experiment = experiment_flags.experiment()
    objects.check([Use("--output", values.output, writes=True)])
    dataset = generate(
        experiment,
        output=values.output,
        records=values.records,
        shards=values.shards,
        seed=values.seed,
        signal_seed=values.signal_seed,
        name=values.name,
        overwrite=values.overwrite,
    )
    best = "not defined: all labels are equal"
    if len(dataset.labels) > 1:
        best = "not defined for several labels"
    if dataset.best_auc is not None:
        best = f"{dataset.best_auc:.4f}"
    sys.stdout.write(
        f"{dataset.name}: {dataset.records:,} records in {len(dataset.shards)} shards "
        f"({byte_size.show(dataset.bytes)}), {time.monotonic() - started:.1f} s\n"
        f"best AUC the planted signal allows: {best}\n"
        f"dataset: {dataset.directory}\n"
    )


def _blocks(count: int) -> Iterator[int]:
    """Sizes of the blocks that make up a count."""
    for start in range(0, count, _BLOCK_RECORDS):
        yield min(_BLOCK_RECORDS, count - start)


def _records(columns: Mapping[str, npt.NDArray[np.generic]]) -> Iterator[dict[str, Any]]:
    """The values of each record, from columns `[count, *shape]` by name, masked ones left out."""
    lists = [_values(column) for column in columns.values()]
    for row in zip(*lists, strict=True):
        yield dict(zip(columns, row, strict=True))


def _values(column: npt.NDArray[np.generic]) -> list[list[Any]]:
    """The values of each record of one column."""
    rows = column.reshape(len(column), -1).tolist()
    if not isinstance(column, np.ma.MaskedArray):
        return rows
    return [[value for value in row if value is not None] for row in rows]


def _define_flags() -> None:
    flags.adopt_module_key_flags(experiment_flags)
    flags.mark_flag_as_required("config")
    flags.DEFINE_string("output", None, "Directory of the dataset.", required=True)
    flags.DEFINE_integer("records", None, "Number of records.", lower_bound=1, required=True)
    flags.DEFINE_integer("shards", None, "Number of shards.", lower_bound=1, required=True)
    flags.DEFINE_integer("seed", 0, "Seed of the records and labels.", lower_bound=0)
    flags.DEFINE_integer("signal_seed", 0, "Seed of the planted signal.", lower_bound=0)
    flags.DEFINE_string("name", "", "Prefix of the shards; the experiment's name by default.")
    flags.DEFINE_boolean("overwrite", False, "Replace a dataset in the output directory.")


if __name__ == "__main__":
    _define_flags()
    entry.run(main, rewritten=experiment_flags.take)
