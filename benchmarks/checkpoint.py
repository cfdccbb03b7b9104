"""Measures saving and restoring 1 GB of tables and slots: `python -m benchmarks.checkpoint`.

On a local cluster of 2 ps and 2 workers: how fast the workers train while a checkpoint is saved,
from the moment it is due to the commit, beside how fast they train between saves; and
how fast the ps write and read, beside `dd` on the same disk, what is read being in the page cache
and not. See docs/checkpoints.md.
"""

import argparse
import bisect
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import datasets, systems
from benchmarks.cases import Case
from benchmarks.measurement import Failed, started, tail
from benchmarks.systems import System, system
from tfps.job_dir import JobDir, report

_CASE = Case(rows=200_000)
_DIM = 24  # 26 tables of 200,000 rows with Adagrad's slots: 998 MB
_SAVED = re.compile(r"\] .*saved ")
_SETTLE_SECONDS = 1.0  # after a save, before the speed counts as undisturbed


@dataclasses.dataclass
class Run:
    """What was seen of a run.

    Attributes:
        times: When progress was shown, monotonic clock, seconds.
        examples: How many examples were trained by then.
        saves: For every save, when it was committed and the report's `checkpoints` of that moment.
    """

    times: list[float] = dataclasses.field(default_factory=list)
    examples: list[int] = dataclasses.field(default_factory=list)
    saves: list[tuple[float, dict[str, Any]]] = dataclasses.field(default_factory=list)

    def trained_at(self, moment: float) -> float:
        """Examples trained by a moment, between two lines of progress in proportion."""
        after = min(max(1, bisect.bisect(self.times, moment)), len(self.times) - 1)
        (t0, t1), (e0, e1) = self.times[after - 1 : after + 1], self.examples[after - 1 : after + 1]
        return e0 + (e1 - e0) * (moment - t0) / (t1 - t0)

    def speed(self, start: float, end: float) -> float:
        """Examples per second between two moments."""
        return (self.trained_at(end) - self.trained_at(start)) / (end - start)

    def took(self, save: int, field: str) -> float:
        """What a field of the report grew by with a save."""
        before = self.saves[save - 1][1][field] if save else 0.0
        return float(self.saves[save][1][field]) - before


def main() -> int:
    """Measures, prints; returns the exit code."""
    flags = parse()
    data = flags.data.absolute()
    datasets.ensure(data, _CASE)
    flags.directory.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="tfps-benchmark-", dir=flags.directory) as name:
            directory = pathlib.Path(name)
            for number in range(flags.runs):
                print(f"run {number + 1}", flush=True)
                measure_disk(directory / "dd")
                measure_training(flags, data, directory / f"job-{number}")
                measure_files(flags, data, directory / f"files-{number}")
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, default=datasets.ROOT / "runs/benchmarks")
    add("--directory", type=pathlib.Path, default=datasets.ROOT / "runs", help="on the disk to use")
    add("--runs", type=int, default=1)
    add("--saves", type=int, default=4, help="of a run; the first is left out")
    add("--checkpoint_seconds", type=float, default=40.0, help="of training between two saves")
    add("--limit_seconds", type=float, default=400.0, help="for a cluster, start included")
    add("--workers", type=int, default=2)
    add("--intra_op_threads", type=int, default=1)
    add("--inter_op_threads", type=int, default=4)
    return parser.parse_args()


def measure_disk(path: pathlib.Path) -> None:
    """Prints what `dd` writes and reads: 1 GB into the page cache, to the disk, and out of both."""
    write, read = ["if=/dev/zero", f"of={path}", "count=1000"], [f"if={path}", "of=/dev/null"]
    dd("dd, write", path, write)
    dd("dd, write again", path, write)
    dd("dd, write, conv=fsync", path, [*write, "conv=fsync"])
    dd("dd, read from the page cache", path, read)
    evict(path)
    dd("dd, read from the disk", path, read)
    path.unlink()


def dd(what: str, path: pathlib.Path, arguments: list[str]) -> None:
    """Prints how fast `dd` goes through a file."""
    began = time.monotonic()
    subprocess.run(["dd", "bs=1M", "status=none", *arguments], check=True)
    show(what, path.stat().st_size, time.monotonic() - began)


def evict(path: pathlib.Path) -> None:
    """Writes what the page cache holds of a file to the disk, and lets go of it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_training(flags: argparse.Namespace, data: pathlib.Path, job_dir: pathlib.Path) -> None:
    """Prints how fast workers train over saves in the background, and how late these begin."""
    run = watch(flags, data, job_dir, flags.checkpoint_seconds, "true")
    for save in range(1, flags.saves):
        last, committed = run.saves[save - 1][0], run.saves[save][0]
        # Training continues, and its time begins to count, when a write begins.
        due = last - run.took(save - 1, "write_seconds") + flags.checkpoint_seconds
        late = committed - run.took(save, "write_seconds") - due
        usual = run.speed(last + _SETTLE_SECONDS, due)
        saving = run.speed(due, committed)
        print(
            f"save in the background: {saving:,.0f} examples/s over {committed - due:.1f} s, "
            f"{saving / usual:.2f} of {usual:,.0f}, which costs "
            f"{(1 - saving / usual) * (committed - due):.1f} s of training; begun {late:.1f} s "
            f"late, all stopped for {run.took(save, 'stopped_seconds'):.2f} s, written in "
            f"{run.took(save, 'write_seconds'):.1f} s",
            flush=True,
        )
    shutil.rmtree(job_dir)


def measure_files(flags: argparse.Namespace, data: pathlib.Path, job_dir: pathlib.Path) -> None:
    """Prints how fast the ps write and read while no worker trains."""
    run = watch(flags, data, job_dir, 1.0, "false")
    for save in range(1, flags.saves):
        show("save", run.saves[save][1]["bytes"], run.took(save, "write_seconds"))
    measure_restore("restore from the page cache", flags, data, job_dir)
    for path in job_dir.glob("checkpoints/*/parameters.data-*"):
        evict(path)
    measure_restore("restore from the disk", flags, data, job_dir)
    shutil.rmtree(job_dir)


def measure_restore(
    what: str, flags: argparse.Namespace, data: pathlib.Path, job_dir: pathlib.Path
) -> None:
    """Prints how fast the ps read a job's newest checkpoint."""
    watch(flags, data, job_dir, 1.0, "false", saves=1)
    fields = report.read(JobDir(job_dir))
    assert fields
    show(what, fields["checkpoints"]["bytes"], fields["restore_seconds"])


def show(what: str, size: int, seconds: float) -> None:
    """Prints a throughput."""
    print(f"{what}: {size / 1e6:,.0f} MB in {seconds:.2f} s, {size / 1e6 / seconds:,.0f} MB/s")


def watch(
    flags: argparse.Namespace,
    data: pathlib.Path,
    job_dir: pathlib.Path,
    checkpoint_seconds: float,
    in_background: str,
    saves: int = 0,
) -> Run:
    """Trains until so many checkpoints are saved."""
    started_as = system("tfps-2ps", _CASE, flags, datasets.path(data, _CASE), job_dir)
    command = [
        *(*started_as.command, f"--task.dim={_DIM}", "--train.keep_checkpoints=1"),
        f"--train.checkpoint_seconds={checkpoint_seconds}",
        f"--train.checkpoint_in_background={in_background}",
        "--train.largest_increment=0",
    ]
    run, log = Run(), job_dir.with_suffix(".log")
    with (
        started(System(command, started_as.root), log, flags.limit_seconds) as process,
        log.open("a") as kept,
    ):
        for line in process.stdout:
            now = time.monotonic()
            kept.write(line)
            if trained := systems.progress(line):
                run.times.append(now)
                run.examples.append(trained[0])
            if not _SAVED.search(line):
                continue
            fields = report.read(JobDir(job_dir))
            run.saves.append((now, fields["checkpoints"] if fields else {}))
            if len(run.saves) == (saves or flags.saves):
                return run
    raise Failed(f"{len(run.saves)} checkpoints were saved:\n{tail(log)}")


if __name__ == "__main__":
    sys.exit(main())
