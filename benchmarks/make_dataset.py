"""Makes one dataset for all systems: TFRecord shards with their manifest, and arrays.

    python -m benchmarks.make_dataset --config=configs/criteo.py --output=DIR

Each shard is there many times under other names, as links: an epoch that outlasts a window, from
records that are generated in seconds. `arrays/*.npy` hold the same records, for a peer that does
not read TFRecords.
"""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import argparse
import dataclasses
import os
import pathlib
import shutil
import sys

import numpy as np

from benchmarks.arrays import read_arrays
from tfps.data import manifest
from tfps.data.manifest import Manifest
from tfps.experiment import field_flags, overrides
from trainer.datasets.generation import generate

SHARDS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--config", required=True, help="of the task; its fields are flags")
    parser.add_argument("--output", required=True, help="directory to make")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--copies", type=int, default=40, help="how often an epoch has each record")
    fields, rest = field_flags.split(sys.argv[1:])
    flags = parser.parse_args(rest)
    experiment = overrides.apply(overrides.load(flags.config), fields)
    partial = pathlib.Path(f"{flags.output}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    made = generate(experiment, str(partial), flags.records, SHARDS)
    arrays = partial / "arrays"
    arrays.mkdir()
    for name, values in read_arrays(made, experiment.task.schema()).items():
        np.save(arrays / f"{name}.npy", values)
    link(made, partial, flags.copies)
    partial.rename(flags.output)


def link(made: Manifest, directory: pathlib.Path, copies: int) -> None:
    """Gives each shard more names, and writes the manifest of all of them."""
    shards = list(made.shards)
    for copy in range(1, copies):
        for shard in made.shards:
            file = f"copy-{copy:02d}-{shard.file}"
            os.link(directory / shard.file, directory / file)
            shards.append(dataclasses.replace(shard, file=file))
    index = dataclasses.replace(made.index, offsets=made.index.offsets * copies)
    manifest.write(dataclasses.replace(made, shards=tuple(shards), index=index))


if __name__ == "__main__":
    main()
