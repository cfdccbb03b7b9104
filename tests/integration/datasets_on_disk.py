"""Makes the datasets that the trainer's integration tests share."""

import concurrent.futures
import dataclasses
import pathlib
from collections.abc import Sequence

import tensorflow as tf
from cluster_process import Program

from configs import smoke
from tfps.data import manifest
from tfps.data.dataset_writer import DatasetWriter

UNEVEN = (0, 1, 33, 500, 517, 640, 312)  # records per shard


@dataclasses.dataclass(frozen=True)
class Datasets:
    """Directories of datasets for the smoke config.

    Attributes:
        long: 12,000 records in 12 shards: several seconds of training in small batches.
        uneven: 2,003 records in 7 shards, one of them empty.
        two_shards: 151 records in 2 shards.
        eval: 501 records in 3 shards.
    """

    long: pathlib.Path
    uneven: pathlib.Path
    two_shards: pathlib.Path
    eval: pathlib.Path


def make_datasets(directory: pathlib.Path) -> Datasets:
    """Makes all of them in a directory."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        long = pool.submit(generate, directory / "long", "--records=12000", "--shards=12")
        evaluated = pool.submit(
            generate, directory / "eval", "--records=501", "--shards=3", "--seed=1"
        )
    return Datasets(
        long.result(),
        _reshard(long.result(), directory / "uneven", UNEVEN),
        _reshard(long.result(), directory / "two_shards", (140, 11)),
        evaluated.result(),
    )


def generate(path: pathlib.Path, *flags: str) -> pathlib.Path:
    """Runs `trainer.generate`; returns the dataset's directory."""
    argv = ["--config=configs/smoke.py", f"--output={path}", *flags]
    with Program(*argv, module="trainer.generate") as program:
        assert program.finish() == 0, program.text
    return path


def _reshard(source: pathlib.Path, target: pathlib.Path, sizes: Sequence[int]) -> pathlib.Path:
    """Writes the first records of a dataset again, in shards of other sizes."""
    held = manifest.read(str(source))
    records = tf.data.TFRecordDataset([held.path_of(shard) for shard in held.shards])
    stream = records.as_numpy_iterator()
    task = smoke.get_config().task
    with DatasetWriter.open(str(target), "smoke", len(sizes), task.schema()) as writer:
        for shard, size in enumerate(sizes):
            for _ in range(size):
                writer.write(shard, next(stream))
        writer.finish()
    return target
