"""Reads a dataset whole and says what is wrong: what `trainer.inspect` does."""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import dataclasses
import sys
import time
from collections.abc import Sequence

import tensorflow as tf
from absl import flags

from tfps.checkpoint import reader
from tfps.checkpoint.checkpoint import DamagedCheckpointError, explain_failures
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.saved_values import named_checkpoint, summaries
from tfps.data import bad_records, manifest
from tfps.data.examples import LISTS, Counts, CountsSum
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.schema import Schema, is_wrong, notes
from tfps.data.shards import STRIDE
from tfps.data.tfrecord import compression_of, scan
from tfps.errors import EXIT_OK, EXIT_USER, UserError
from tfps.storage import objects
from tfps.storage.objects import Use
from trainer.console import inspection_text
from trainer.console.inspection_text import warn_of_sorted
from trainer.datasets import data_files, shard_scan
from trainer.datasets.shard_scan import ShardScan

_SAMPLED_RECORDS = 1000  # of which the schema is told when no manifest does
_SHOWN_DAMAGES = 10


@dataclasses.dataclass(frozen=True)
class Inspection:
    paths: Sequence[str]
    scans: Sequence[ShardScan]
    dataset: Manifest | None  # None for files without a manifest
    problems: list[str]
    schema: Schema  # the manifest's; without one, what some of the records have
    counts: Counts

    @property
    def records(self) -> int:
        return sum(each.shard.records for each in self.scans)


def inspect(data: str, processes: int) -> Inspection:
    problems: list[str] = []
    dataset = None
    try:
        if manifest.is_in(data):
            try:
                dataset = manifest.read(data)
            except UserError as error:  # what it says is shown with what the files hold
                problems.append(str(error))
        if dataset is None:
            paths = data_files.find_records(data, "--data")
        else:
            paths = [dataset.path_of(shard) for shard in dataset.shards]
        schema = Schema.of(dataset) if dataset else _schema_of_records(paths)
        checked = _SAMPLED_RECORDS if dataset else 0
        scans = list(shard_scan.scan_shards(paths, processes, schema.all, checked, may_lack=True))
    except tf.errors.OpError as error:
        raise UserError(f"--data={data} cannot be read: {error.message}") from None
    for index, (path, found) in enumerate(zip(paths, scans, strict=True)):
        problems.extend(_problems(path, found))
        if dataset is not None and found.is_whole:
            problems.extend(_differences(dataset, index, found))
        if dataset is None:
            problems.extend(_foreign(path))
    counts = CountsSum()
    for found in scans:
        counts.add(found.counts)
    inspection = Inspection(paths, scans, dataset, problems, schema, counts.total)
    problems.extend(_odd_values(inspection))
    return inspection


def _schema_of_records(paths: Sequence[str]) -> Schema:
    """What the first records of some files have, as lists; of two types of a feature the first."""
    found: dict[str, Feature] = {}
    for record in shard_scan.first_records(paths, _SAMPLED_RECORDS):
        for name, held in tf.train.Example.FromString(record).features.feature.items():
            for dtype, kind in LISTS.items():
                if kind == held.WhichOneof("kind"):
                    found.setdefault(name, Feature(name, dtype, (None,)))
    return Schema(tuple(found[name] for name in sorted(found)), ())


def _foreign(path: str) -> list[str]:
    """What is wrong with the first record of a file, where it is no Example."""
    first = next(scan(path, compression_of(path)), None)
    if first is None or first.problem or first.data is None:
        return []
    found = bad_records.find_problem(first.data, ())
    return [f"{path}: record 0 {found}"] if found else []


def _odd_values(inspection: Inspection) -> list[str]:
    """What the counts over all records show that cannot be, where no file's first records did."""
    if inspection.dataset is None or any(found.unfit for found in inspection.scans):
        return []
    counts, records, features = inspection.counts, inspection.records, inspection.schema.all
    wrong = [each for each in features if counts and is_wrong(counts[each.name], records)]
    return notes(counts, records, wrong)


def _problems(path: str, found: ShardScan) -> list[str]:
    problems = [
        f"{path}: record {bad.number} (byte {bad.offset}) {bad.problem}" for bad in found.damaged
    ]
    if found.unfit:
        problems.append(f"{path}: {found.unfit}, as the manifest says")
    return problems


def _differences(dataset: Manifest, index: int, found: ShardScan) -> list[str]:
    """What a file holds that its manifest does not say; damage inside is told record by record."""
    shard, path = dataset.shards[index], dataset.path_of(dataset.shards[index])
    if found.shard.records != shard.records:
        return [
            f"{path}: holds {found.shard.records:,} records, but {manifest.FILE} says "
            f"{shard.records:,}"
        ]
    if found.shard.compression != shard.compression:
        return [
            f"{path}: is {found.shard.compression or 'not compressed'}, but {manifest.FILE} differs"
        ]
    offsets = dataset.index.offsets[index]
    if dataset.index.stride == STRIDE and found.offsets.tolist() != offsets.tolist():
        return [f"{path}: the index says that records begin elsewhere"]
    if found.shard.crc32c != shard.crc32c and not found.damaged:
        return [
            f"{path}: its checksum is {found.shard.crc32c}, but {manifest.FILE} says {shard.crc32c}"
        ]
    return []


def run() -> int:
    """Prints what the flags name; 2 when something is damaged."""
    values = flags.FLAGS
    if not values.data:
        raise UserError("name the data: python -m trainer.inspect DATA")
    started = time.monotonic()
    objects.check([Use("data", values.data)])
    if CheckpointDirectory.committed_at(values.data.rstrip("/")):
        return _show_checkpoint(values.data, values.keys)
    found = inspect(values.data, values.processes)
    told_from = 0 if found.dataset else _SAMPLED_RECORDS  # the schema, from so many records
    first = shard_scan.first_records(found.paths, max(values.records, told_from))
    sample = list(map(tf.train.Example.FromString, first))
    shards = [each.shard for each in found.scans]
    lines = inspection_text.overview(values.data, found.dataset, shards)
    if found.dataset:
        lines += inspection_text.schema(found.dataset)
    else:
        lines += inspection_text.schema_of(sample)
    lines += ["", *said] if (said := notes(found.counts, found.records, found.schema.all)) else []
    lines += ["", *inspection_text.shard_table(found.scans)]
    for number, record in enumerate(sample[: values.records]):
        lines += ["", f"record {number}", *inspection_text.record(record)]
    sys.stdout.write("\n".join([*lines, "", ""]))
    if not found.problems:
        if found.dataset:
            warn_of_sorted(
                found.dataset, "trainer.index with --shuffle=whole --output=ANOTHER_DIRECTORY"
            )
        seconds = time.monotonic() - started
        sys.stdout.write(f"all {found.records:,} records fit their checksums ({seconds:.1f} s)\n")
        return EXIT_OK
    sys.stdout.flush()
    for problem in found.problems[:_SHOWN_DAMAGES]:
        sys.stderr.write(f"error: {problem}\n")
    if more := len(found.problems) - _SHOWN_DAMAGES:
        sys.stderr.write(f"error: {more} more\n" if more > 0 else "")
    return EXIT_USER


def _show_checkpoint(path: str, most_used: int) -> int:
    """Prints what a checkpoint's tables hold; a job's newest."""
    started = time.monotonic()
    checkpoint = named_checkpoint(path)
    try:
        with explain_failures(f"checkpoint {checkpoint.path} cannot be read"):
            reader.check(checkpoint)
            tables = summaries(checkpoint, most_used)
    except DamagedCheckpointError as damage:
        raise UserError(f"checkpoint {checkpoint.path} is damaged: {damage}") from None
    lines = [*inspection_text.checkpoint_overview(checkpoint), *inspection_text.tables(tables), ""]
    rows, seconds = sum(table.norms.count for table in tables), time.monotonic() - started
    sys.stdout.write("\n".join([*lines, f"all {rows:,} rows were read ({seconds:.1f} s)", ""]))
    return EXIT_OK
