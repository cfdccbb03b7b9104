"""Measures how long training pauses when a task dies: `python -m benchmarks.recovery`.

A task of a local cluster is killed while the DLRM trains, again and again, each time once training
has continued for a while. See docs/recovery.md.
"""

import argparse
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from benchmarks import datasets, systems
from benchmarks.cases import Case

_PROGRESS = re.compile(r"\[chief\] .*epoch \d+/\d+: ([\d,]+) of")
# The first line of a task that was started again, from where on it does its part.
_IS_BACK = {"worker": r"\[worker 0\] .*serves at", "ps": r"\[ps 0\] .*serves at"}
_IS_BACK["chief"] = r"\[chief\] .*waiting for \d+ workers"
_IS_CONNECTED = r"\[chief\] .*connected to \d+ workers"
_FAULTS_PER_JOB = 3  # the launcher waits longer before every further restart


def main() -> int:
    """Measures and prints a table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, default=datasets.ROOT / "runs/benchmarks")
    add("--roles", type=lambda text: text.split(","), default=list(_IS_BACK))
    add("--rows", type=int, nargs="*", default=[20_000, 200_000], help="of each of the 26 tables")
    add("--faults", type=int, default=10, help="for each role and number of rows")
    add("--warm_seconds", type=float, default=4.0, help="of training before a fault")
    flags = parser.parse_args()
    columns = ("to next batch", "of it restart", "beyond", "from connected on")
    print(f"{'rows':>8} {'role':8}" + "".join(f"{column:>22}" for column in columns))
    for rows in flags.rows:
        case = Case(rows=rows)
        datasets.ensure(flags.data, case)
        for role in flags.roles:
            found: list[tuple[float, ...]] = []
            while len(found) < flags.faults:
                faults = min(_FAULTS_PER_JOB, flags.faults - len(found))
                found += job(case, flags.data, role, faults, flags.warm_seconds)
            cells = "".join(f"{text(column):>22}" for column in zip(*found, strict=True))
            print(f"{rows:8,} {role:8}{cells}", flush=True)
    return 0


def text(seconds: Sequence[float]) -> str:
    """Median, least and greatest."""
    return f"{statistics.median(seconds):.1f} ({min(seconds):.1f}-{max(seconds):.1f}) s"


def job(
    case: Case, data: pathlib.Path, role: str, faults: int, warm_seconds: float
) -> list[tuple[float, ...]]:
    """Kills a task of one job several times.

    Returns:
        For each fault the seconds until the next batch was trained, those until the killed task was
        back, those from there on, and those from when the chief was connected again. For a worker,
        which nobody waits for, the third are those from the fault on, and there is no fourth.
    """
    with tempfile.TemporaryDirectory(prefix="tfps-benchmark-") as directory:
        command = [
            *(sys.executable, "-m", "cloud.local", "--workers=2", "--ps=1", "--"),
            *(*datasets.config_flags(case), f"--data.train={datasets.path(data, case)}"),
            *(f"--job_dir={directory}/job", "--train.checkpoint_seconds=5"),
            *("--intra_op_threads=1", "--inter_op_threads=4"),
            *("--progress=lines", "--progress_seconds=0.1"),
        ]
        started = subprocess.Popen(
            command, cwd=datasets.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            lines = timed(started)
            return [fault(started.pid, lines, role, warm_seconds) for _ in range(faults)]
        finally:
            started.send_signal(signal.SIGKILL)  # the kernel ends its tasks with it
            started.wait()


def timed(started: subprocess.Popen) -> Iterator[tuple[float, str]]:
    """The output's lines with the time at which each came.

    Raises:
        RuntimeError: When the output ends; the job should not.
    """
    assert started.stdout is not None
    seen = []
    for line in started.stdout:
        seen.append(line)
        yield time.monotonic(), line
    raise RuntimeError(f"the job ended:\n{''.join(seen[-40:])}")


def fault(
    launcher: int, lines: Iterator[tuple[float, str]], role: str, warm_seconds: float
) -> tuple[float, ...]:
    """Kills a task once training has continued for a while, and follows what happens."""
    next_batch(lines)
    warm = time.monotonic() + warm_seconds
    while next(lines)[0] < warm:
        pass
    os.kill(systems.tasks(launcher, "launcher")[f"{role}-0"], signal.SIGKILL)
    killed = time.monotonic()
    if role == "worker":
        trained = next_batch(lines, after=killed)
        back = until(lines, _IS_BACK[role])
        return trained - killed, back - killed, trained - killed
    back = until(lines, _IS_BACK[role])
    connected = until(lines, _IS_CONNECTED)
    trained = next_batch(lines, after=connected)
    return trained - killed, back - killed, trained - back, trained - connected


def until(lines: Iterator[tuple[float, str]], pattern: str) -> float:
    """When a line with the pattern came."""
    return next(when for when, line in lines if re.search(pattern, line))


def next_batch(lines: Iterator[tuple[float, str]], after: float = 0.0) -> float:
    """When a line first told of more records trained than the one before."""
    last = None
    for when, line in lines:
        if when > after and (match := _PROGRESS.search(line)):
            if last not in (None, match[1]):
                return when
            last = match[1]
    raise AssertionError("the lines never end")


if __name__ == "__main__":
    sys.exit(main())
