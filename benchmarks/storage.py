"""Measures training from gs:// beside training from local disk: `python -m benchmarks.storage`.

The cloud is the one of the tests, on this machine, with a latency for every request and a limit to
its bandwidth. Where the data lies takes turns: local disk, gs://, gs:// with all shards in
`--cache_dir`, as in a second epoch. The cloud's own CPU time comes from the same cores as the
training; `others_cores` shows it. See benchmarks/README.md.
"""

import argparse
import json
import os
import pathlib
import posixpath
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks import datasets, table
from benchmarks.cases import Case
from benchmarks.measurement import Failed, Window, measure
from benchmarks.systems import System, system
from tests.local_cloud.local_cloud import LocalCloud
from tfps.data import manifest
from tfps.data.shard_cache import ASKED, ShardCache, copy_name, note
from tfps.storage import objects

PLACES = ("local", "gs", "cached")
_BUCKET = "benchmark"
_COPIES = 5  # of a million records


def main() -> int:
    """Measures every place, prints a table; returns the exit code."""
    flags = parse()
    case = Case()
    data = ensure(flags.data.absolute(), case)
    figures: dict[str, list[dict[str, Any]]] = {place: [] for place in flags.places}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tfps-benchmark-") as name,
            LocalCloud(pathlib.Path(name), _BUCKET) as cloud,
        ):
            directory = pathlib.Path(name)
            os.environ.update(cloud.environ)
            there = upload(data)
            cache_dir = directory / "cache"
            if "cached" in flags.places:
                stage(there, cache_dir)
            cloud.set(latency_seconds=flags.latency_seconds, bytes_per_second=1e6 * flags.megabytes)
            for run in range(flags.runs):
                for place in flags.places:
                    cloud.counted()
                    started = training(flags, case, place, data, there, directory / f"{run}{place}")
                    found = measure(started, window(flags), directory / f"{run}{place}.log")
                    figures[place].append({**found, "cloud": cloud.counted()})
                    tell(run, place, figures[place][-1])
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(summary(figures))
    return 0


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, default=datasets.ROOT / "runs/benchmarks")
    add("--places", type=lambda text: text.split(","), default=list(PLACES))
    add("--runs", type=int, default=3)
    add("--seconds", type=float, default=20.0, help="least window of a run")
    add("--warm_seconds", type=float, default=5.0, help="of training before the window")
    add("--limit_seconds", type=float, default=300.0, help="for a run, start included")
    add("--latency_seconds", type=float, default=0.05, help="of every request")
    add("--megabytes", type=float, default=100.0, help="per second, all connections together")
    add("--system", default="tfps-1ps", help="a system of benchmarks.cases.TFPS")
    add("--workers", type=int, default=2)
    add("--intra_op_threads", type=int, default=1)
    add("--inter_op_threads", type=int, default=4)
    return parser.parse_args()


def window(flags: argparse.Namespace) -> Window:
    """When to measure."""
    return Window(flags.warm_seconds, flags.seconds, flags.limit_seconds)


def ensure(parent: pathlib.Path, case: Case) -> pathlib.Path:
    """Makes the dataset unless it is there: small enough for a cache, longer than a window."""
    directory = parent / "storage"
    if not directory.exists():
        parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.make_dataset", f"--copies={_COPIES}"]
        command += [f"--output={directory}", *datasets.config_flags(case)]
        subprocess.run(command, cwd=datasets.ROOT, check=True)
    return directory


def upload(data: pathlib.Path) -> str:
    """Puts a dataset onto gs://; files that are links to one another are sent once."""
    bucket = objects.client().bucket(_BUCKET)
    sent: dict[int, Any] = {}
    for path in sorted(path for path in data.iterdir() if path.is_file()):
        name = posixpath.join("data", path.name)
        inode = path.stat().st_ino
        if inode in sent:
            bucket.copy_blob(sent[inode], bucket, name)
        else:
            sent[inode] = bucket.blob(name)
            sent[inode].upload_from_filename(str(path))
    return f"gs://{_BUCKET}/data"


def stage(there: str, cache_dir: pathlib.Path) -> None:
    """Copies all shards to a cache_dir, as workers do that have read them once."""
    cache = ShardCache(str(cache_dir), limit_bytes=1 << 50)
    cache.make_directories()
    dataset = manifest.read(there)
    for shard in dataset.shards:
        asked = dataset.path_of(shard), shard.generation
        (cache_dir / ASKED / copy_name(*asked)).write_text(note(*asked))
    cache.fetch_asked()


def training(
    flags: argparse.Namespace,
    case: Case,
    place: str,
    data: pathlib.Path,
    there: str,
    directory: pathlib.Path,
) -> System:
    """The training of a case on the data in a place."""
    started = system(flags.system, case, flags, data, directory / "job")
    command = list(started.command)
    if place != "local":
        command[command.index(f"--data.train={data}")] = f"--data.train={there}"
    if place == "cached":
        command.append(f"--cache_dir={directory.parent / 'cache'}")
    return System(command, started.root)


def tell(run: int, place: str, found: dict[str, Any]) -> None:
    """Prints the figures of one run."""
    others = found["others_cores"] + found["stolen_cores"]
    print(
        f"run {run + 1} {place}: {found[table.SPEED]:,.0f} examples/s, {found[table.CPU]:,.1f} "
        f"CPU-s per million, {others:.2f} cores used by others, cloud {json.dumps(found['cloud'])}",
        flush=True,
    )


def summary(figures: dict[str, Sequence[dict[str, Any]]]) -> str:
    """Medians, and the median ratio to the first place's run of the same turn."""
    lines = ["", f"{'':8}{'examples/s':>14}{'CPU-s per M':>14}{'speed beside first':>20}"]
    first = next(iter(figures.values()))
    for place, runs in figures.items():
        medians = [statistics.median(run[key] for run in runs) for key in (table.SPEED, table.CPU)]
        pairs = zip(runs, first, strict=True)
        ratio = statistics.median(one[table.SPEED] / other[table.SPEED] for one, other in pairs)
        lines.append(f"{place:8}{medians[0]:14,.0f}{medians[1]:14,.1f}{ratio:20.3f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
