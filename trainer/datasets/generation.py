"""Draws records with a planted signal: what `trainer.generate` does."""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import math
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import flags

from tfps import byte_size
from tfps.data import examples
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.errors import UserError
from tfps.experiment import metrics
from tfps.experiment.experiment import Experiment
from tfps.layers import id_check
from tfps.layers.id_check import mix_array
from tfps.storage import objects
from tfps.storage.objects import Use
from trainer.console import file_progress
from trainer.flags import experiment_flags

Columns = dict[str, npt.NDArray[np.generic]]
Logits = npt.NDArray[np.float64]
_ZIPF_EXPONENT = 1.2
# Share of the logit's variance that is in the numbers; the rest is in the ids.
_NUMBERS_SHARE = 0.5
# An id this far down the vocabulary has half the weight of a hot one: what is seen too rarely to
# be learned from some 100,000 records carries little of the signal.
_HALF_WEIGHT_ID = 30.0
_LOGIT_DEVIATION = 1.75
_POSITIVE_SHARE = 0.27
_CALIBRATION_RECORDS = 20_000
_MOST_VALUES = 5  # of a feature that varies in length
_GOLDEN = np.uint64(id_check.GOLDEN)
_BLOCK_RECORDS = 4096


class PlantedSignal:
    """A logistic model over any features, whose weights are a hash of a seed.

    Ids are skewed as by Zipf's law (id 0 is the hottest) and each has a weight per feature and
    column; numbers are standard normal, with a weight per column. No table of weights is stored, so
    a vocabulary may be of any size. A feature that varies in length holds 0 to 5 values, which
    weigh the same wherever they are; all such features of a record have equally many.
    """

    def __init__(self, features: Sequence[Feature], label: Feature, seed: int) -> None:
        _refuse_undrawable(features)
        binary = label.dtype == "float32" or label.vocabulary_size in (0, 2)
        if label.shape or label.dtype == "string" or not binary:
            raise UserError(
                f"label {label.name!r} is not binary; generated data needs a scalar float32 or "
                "int64 label without a vocabulary, or with one of 2"
            )
        self.features = tuple(features)
        self.seed = seed
        self._center, self._scale, self._bias = 0.0, 1.0, 0.0
        generator = np.random.default_rng([seed])
        raw = self.logits(drawn(self.features, generator, _CALIBRATION_RECORDS))
        self._center = float(raw.mean())
        self._scale = _LOGIT_DEVIATION / float(raw.std() or 1.0)
        self._bias = _bias_for((raw - self._center) * self._scale)

    def logits(self, columns: Mapping[str, npt.NDArray[np.generic]]) -> Logits:
        """The true log-odds `[count]` of records."""
        sizes = {True: 0, False: 0}
        for feature in self.features:
            sizes[bool(feature.vocabulary)] += _width(feature)
        both = all(sizes.values())
        shares = {True: 1 - _NUMBERS_SHARE if both else 1.0, False: _NUMBERS_SHARE if both else 1.0}
        total: Logits | float = 0.0
        for feature in self.features:
            is_id = bool(feature.vocabulary)
            part = self._part(feature, columns[feature.name].reshape(-1, _width(feature)))
            total = total + part * math.sqrt(shares[is_id] / sizes[is_id])
        return (np.asarray(total) - self._center) * self._scale + self._bias

    def labels(self, generator: np.random.Generator, logits: Logits) -> npt.NDArray[np.int64]:
        """Draws labels `[count]` (0 or 1) of true log-odds `[count]`."""
        return (generator.random(len(logits)) < _sigmoid(logits)).astype(np.int64)

    def _part(self, feature: Feature, values: npt.NDArray[np.generic]) -> Logits:
        """What one feature `[count, size]` adds to the raw logit `[count]`."""
        columns = np.arange(_width(feature), dtype=np.uint64) * np.uint64(not feature.is_ragged)
        seeds = mix_array(np.array([self.seed], dtype=np.uint64))
        of_feature = mix_array(seeds ^ np.uint64(zlib.crc32(feature.name.encode())))
        keys = mix_array(of_feature + columns * _GOLDEN)
        is_there = ~np.ma.getmaskarray(values)
        values = np.ma.getdata(values)
        if not feature.vocabulary:
            return np.asarray((values * is_there).astype(np.float64) @ _normal(keys))
        weights = _normal(keys ^ mix_array(values.astype(np.uint64)))
        damping = 1.0 / (1.0 + values.astype(np.float64) / _HALF_WEIGHT_ID)
        return np.asarray((weights * damping * is_there).sum(axis=1))


def _refuse_undrawable(features: Sequence[Feature]) -> None:
    for feature in features:
        if feature.dtype == "string" or (feature.dtype == "int64" and not feature.vocabulary):
            raise UserError(
                f"feature {feature.name!r} ({feature.dtype}, without a vocabulary) cannot be "
                "generated; only float32, and int64 with a vocabulary, can"
            )


def drawn(features: Sequence[Feature], generator: np.random.Generator, count: int) -> Columns:
    """Features of `count` records, int64 or float32 `[count, *shape]` by name.

    A feature that varies in length is a masked array `[count, 5]` whose masked values are not
    there.
    """
    columns: Columns = {}
    lengths = np.zeros((count, 1), np.int64)
    if any(feature.is_ragged for feature in features):
        lengths = generator.integers(0, _MOST_VALUES + 1, (count, 1))
    for feature in features:
        shape = (count, *(size or _MOST_VALUES for size in feature.shape))
        if feature.vocabulary:
            columns[feature.name] = _zipf(generator.random(shape), feature.vocabulary_size)
        else:
            columns[feature.name] = generator.standard_normal(shape, dtype=np.float32)
        if feature.is_ragged:
            columns[feature.name] = np.ma.array(
                columns[feature.name], mask=np.arange(_MOST_VALUES) >= lengths
            )
    return columns


def _width(feature: Feature) -> int:
    """Number of columns of a feature's values."""
    return _MOST_VALUES if feature.size is None else feature.size


def _zipf(uniform: npt.NDArray[np.float64], vocabulary: int) -> npt.NDArray[np.int64]:
    """Ids in `[0, vocabulary)` whose density falls as (id + 1) to the power of the exponent."""
    power = 1.0 - _ZIPF_EXPONENT
    ranks = (1.0 - uniform * (1.0 - (vocabulary + 1.0) ** power)) ** (1.0 / power)
    return np.minimum(ranks.astype(np.int64) - 1, vocabulary - 1)


def _normal(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """A standard normal number per key (Box and Muller)."""
    radius, angle = ((mix_array(keys ^ np.uint64(salt)) >> np.uint64(11)) for salt in (1, 2))
    return np.sqrt(-2.0 * np.log((radius + 1.0) / 2.0**53)) * np.cos(angle * (math.tau / 2.0**53))


def _sigmoid(logits: Logits) -> Logits:
    return 1.0 / (1.0 + np.exp(-logits))


def _bias_for(logits: Logits) -> float:
    """What to add to the logits so that the wanted share is positive, by bisection."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        if float(_sigmoid(logits + middle).mean()) < _POSITIVE_SHARE:
            low = middle
        else:
            high = middle
    return low


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
    """Writes drawn records; the manifest has the best AUC if there is a single label."""
    task = experiment.task
    features, labels, targets = task.features(), task.labels(), task.targets()
    weights = [each for each in labels if each not in targets]
    _refuse_undrawable(features)
    signals = [
        PlantedSignal(features, label, signal_seed + (index << 32))
        for index, label in enumerate(targets)
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
                columns = drawn(features, generator, count)
                for signal, label in zip(signals, targets, strict=True):
                    logits = signal.logits(columns)
                    truth = signal.labels(generator, logits)
                    columns = {**columns, label.name: truth}
                    all_logits.append(logits)
                    all_truth.append(truth)
                for weight in weights:
                    shape = (count, *(size or 1 for size in weight.shape))
                    columns[weight.name] = generator.exponential(1.0, shape)
                for values in _records(columns):
                    writer.write(shard, examples.encode(values, features, labels))
                progress.add(count)
        if len(targets) != 1:
            return writer.finish()
        best_auc = metrics.auc(np.concatenate(all_truth), np.concatenate(all_logits))
        return writer.finish(best_auc=None if math.isnan(best_auc) else best_auc)


def run() -> None:
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
    targets = len(experiment.task.targets())
    best = "not defined: all labels are equal"
    if targets != 1:
        best = f"not defined for {'several labels' if targets else 'a task without labels'}"
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
