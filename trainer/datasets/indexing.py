"""Makes datasets of files that are there: what `trainer.index` does."""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import posixpath
import sys
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf
from absl import flags

from tfps import byte_size
from tfps.data import bad_records, dataset_writer, manifest, tfrecord
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.examples import CountsSum, RecordCounter
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.data.record_order import describe_room, scratch_for, whole_shuffle
from tfps.data.schema import Schema, lacking, share, ways_out
from tfps.data.shards import STRIDE, RecordIndex
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.storage import files, objects
from tfps.storage.failures import StorageError
from tfps.storage.objects import Use
from tfps.storage.paths import canonical
from trainer.console import file_progress
from trainer.console.file_progress import FileProgress
from trainer.console.inspection_text import say_counts, warn_of_sorted
from trainer.datasets import data_files, shard_scan
from trainer.datasets.row_encoding import ConfiguredExperiment
from trainer.datasets.shard_scan import CHECKED_RECORDS, ShardScan
from trainer.flags import experiment_flags, shuffle_flags


def index(
    experiment: Experiment, data: str, processes: int, name: str = "", overwrite: bool = False
) -> tuple[Manifest, list[ShardScan]]:
    """Writes index and manifest next to TFRecord files."""
    schema = experiment.task.schema()
    manifest.check_name(name := name or experiment.name)
    try:
        # What a dataset left behind whose writing was interrupted is none of the files meant.
        dataset_writer.settle(data if tf.io.gfile.isdir(data) else posixpath.dirname(data))
        paths = data_files.find_records(data, "--data")
        directory = _directory(paths, data)
        if manifest.is_in(directory) and not overwrite:
            raise UserError(
                f"--data={data} is a dataset already; say --overwrite to write its index and "
                "manifest again"
            )
        scans, counts = [], CountsSum()
        found = shard_scan.scan_shards(paths, processes, schema.all, CHECKED_RECORDS)
        for path, scan in zip(paths, found, strict=True):
            _refuse(path, scan, schema)
            scans.append(scan)
            counts.add(scan.counts)
        made = Manifest(
            name=dataset_writer.free_prefix(directory, name, lambda x: [manifest.index_file(x)]),
            features=[feature.schema() for feature in experiment.task.features()],
            labels=[label.schema() for label in experiment.task.labels()],
            shards=tuple(scan.shard for scan in scans),
            index=RecordIndex(STRIDE, tuple(scan.offsets for scan in scans)),
            origin=manifest.FOUND,
            counts=counts.total,
            directory=directory,
        )
        if not made.records:
            raise UserError(f"--data={data} holds no records")
        shard_scan.refuse_absent(counts.total, made.records, schema.all, paths, f"--data={data}")
        _write(made)
    except StorageError as error:
        raise UserError(f"--data={data}: {error}") from None
    except tf.errors.OpError as error:
        raise UserError(f"--data={data}: {error.message}") from None
    return made, scans


def _write(made: Manifest) -> None:
    """Writes index and manifest in place of those that are there."""
    try:
        *_, old = manifest.named_files(made.directory) or [""]
    except UserError:  # a manifest that is to be replaced need not be understood
        old = ""
    new = manifest.index_file(made.name)
    dataset_writer.begin(made.directory, [old, new] if old else [new])
    try:
        manifest.write(made)
    finally:
        dataset_writer.settle(made.directory)


def _directory(paths: Sequence[str], data: str) -> str:
    directories = sorted({posixpath.dirname(path) for path in paths})
    if len(directories) > 1:
        raise UserError(
            f"--data={data} names files in {len(directories)} directories ({directories[0]}, "
            f"{directories[1]}, …); a dataset's files are in one: index each directory"
        )
    return directories[0] or "."


def _refuse(path: str, scan: ShardScan, schema: Schema) -> None:
    """Refuses a file that is no TFRecord file, or of other records than the features say."""
    if not scan.is_whole:
        end = scan.damaged[-1]
        if end.offset == 0 and scan.shard.compression == "":
            raise UserError(
                f"{path} is no TFRecord file: record 0 {end.problem}; rows of text become records "
                "with trainer.prepare"
            )
        raise UserError(
            f"{path}: record {end.number} (byte {end.offset}) {end.problem}; copy or make the "
            "file again"
        )
    if scan.unfit:
        raise UserError(f"{path}: {scan.unfit}; {_remedy(scan, schema)}")


def _remedy(scan: ShardScan, schema: Schema) -> str:
    """What to do about the first record of a file that is other than the config says."""
    if "not a tf.train.Example" in scan.unfit:
        return (
            "write each record as one: a list is a feature of shape (None,), the features of a "
            "context stand in every record"
        )
    for feature in schema.all:
        texts = f"has no {feature.name!r} (", f"holds 0 values in {feature.name!r},"
        missing = lacking(feature, scan.counts)
        if any(text in scan.unfit for text in texts) and missing < scan.shard.records:
            return (
                f"{share(missing, scan.shard.records)} records of the file lack it: "
                f"{ways_out(feature, schema)}"
            )
    return "the config's features() must be what the records hold"


def files_to_copy(data: str) -> list[str]:
    """A dataset's shards, or the TFRecord files that a path, a glob or a directory names."""
    if manifest.is_in(data):
        dataset = manifest.read(data, "--data")
        return [dataset.path_of(shard) for shard in dataset.shards]
    if files.exists(posixpath.join(data, dataset_writer.FILE)):
        raise UserError(
            f"--data={data} is where a dataset is written, or was when the program was ended; make "
            "that dataset first"
        )
    return data_files.find_records(data, "--data")


def copy_shuffled(
    experiment: Experiment,
    paths: Sequence[str],
    output: str,
    seed: int,
    name: str = "",
    overwrite: bool = False,
) -> Manifest:
    """Writes a dataset of all records of some files, with as many shards as files."""
    schema = experiment.task.schema()
    if canonical(output) in {canonical(posixpath.dirname(path)) for path in paths}:
        raise UserError(
            f"--output={output} holds files of --data, which stay as they are; name another "
            "directory"
        )
    try:
        size = sum(tf.io.gfile.stat(path).length for path in paths)
        with (
            DatasetWriter.open(
                output, name or experiment.name, len(paths), schema, overwrite
            ) as writer,
            file_progress.shown(size) as progress,
        ):
            counter = RecordCounter(schema.all)
            records = _copied_records(paths, schema.all, progress, counter)
            writer.write_all_in_turn(whole_shuffle(records, seed, scratch_for(output)))
            if not writer.records:
                raise UserError(f"--data: {paths[0]} and the other files hold no records")
            counts = counter.finish()
            shard_scan.refuse_absent(
                counts, writer.records, schema.all, paths, f"{paths[0]} and the others"
            )
            return writer.finish(counts=counts)
    except tf.errors.OpError as error:
        raise UserError(f"--data cannot be read: {error.message}") from None


def _copied_records(
    paths: Sequence[str],
    features: Sequence[Feature],
    progress: FileProgress,
    counter: RecordCounter,
) -> Iterator[bytes]:
    """All records of the files as they stand there; refuses one that a copy would hide."""
    for path in paths:
        for record in tfrecord.scan(path, tfrecord.compression_of(path)):
            problem = record.problem
            if not problem and record.number < CHECKED_RECORDS:
                problem = bad_records.find_problem(record.data or b"", features)
            if problem or record.data is None:
                raise UserError(
                    f"{path}: record {record.number} (byte {record.offset}) {problem}; what is "
                    "damaged, or other than the config's features(), is not copied: make the file "
                    "again"
                )
            counter.add(record.data)
            yield tfrecord.frame(record.data)
        progress.add(tf.io.gfile.stat(path).length)


def run() -> None:
    values = flags.FLAGS
    started = time.monotonic()
    experiment = ConfiguredExperiment(
        values.config, experiment_flags.fields(), values.without_labels
    )()
    seed = shuffle_flags.seed()
    if seed is None:
        made, damages = _indexed(experiment)
    else:
        made, damages = _shuffled(experiment, seed), []
    compressed = sum(bool(shard.compression) for shard in made.shards)
    detail = f", {compressed} of them compressed" if compressed else ""
    sys.stdout.write(
        f"{made.name}: {made.records:,} records in {len(made.shards)} shards{detail} "
        f"({byte_size.show(made.bytes)}), {time.monotonic() - started:.1f} s\n"
    )
    for damage in damages:
        sys.stdout.write(f"{damage}\n")
    say_counts(made, experiment.task.schema())
    sys.stdout.write(f"dataset: {made.directory}\n")
    warn_of_sorted(made, "--shuffle=whole --output=ANOTHER_DIRECTORY")


def _indexed(experiment: Experiment) -> tuple[Manifest, list[str]]:
    """Makes a dataset of the files where they are, and says which of them hold damaged records."""
    values = flags.FLAGS
    if values.output:
        raise UserError(
            f"--output={values.output} goes with --shuffle=whole; otherwise index and manifest "
            "are written beside the files"
        )
    objects.check([Use("--data", values.data, writes=True)])
    made, scans = index(experiment, values.data, values.processes, values.name, values.overwrite)
    return made, [
        f"{path}: {len(scan.damaged)} damaged records, the first of them record "
        f"{scan.damaged[0].number} (byte {scan.damaged[0].offset}); training will stop there "
        "without --data.max_bad_records"
        for path, scan in zip(map(made.path_of, made.shards), scans, strict=True)
        if scan.damaged
    ]


def _shuffled(experiment: Experiment, seed: int) -> Manifest:
    """Writes the files' records in a drawn order to another directory."""
    values = flags.FLAGS
    if not values.output:
        raise UserError(
            "--shuffle=whole writes the records once more, since the files stay as they are: say "
            "where with --output=DIR"
        )
    uses = [Use("--data", values.data), Use("--output", values.output, writes=True)]
    objects.check(uses)
    paths = files_to_copy(values.data)
    if room := describe_room(values.output, sum(map(files.size, paths))):
        sys.stderr.write(f"{room}\n")
    return copy_shuffled(experiment, paths, values.output, seed, values.name, values.overwrite)
