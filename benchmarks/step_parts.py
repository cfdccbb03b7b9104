"""Measures where a step's CPU time goes: `python -m benchmarks.step_parts`.

Per step, in ms: of the worker that makes it, of all ps, and of one process that does the same.
Linux says what each thread took and how often it was woken, for a window in which nothing is
traced. A trace of the same job, behind the window, says how long operations took, by what they are
part of. See benchmarks/README.md.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence

from benchmarks import datasets, step_table
from benchmarks.cases import STEP, TFPS, Case
from benchmarks.measurement import Failed, Window, measure
from benchmarks.step_watch import StepWatch, free_port
from benchmarks.systems import System, system


def main() -> int:
    """Measures in turn, prints a table; returns the exit code."""
    flags = parse()
    case = Case(flags.model, flags.rows, flags.batch)
    datasets.ensure(flags.data, case)
    found: list[Mapping[str, Mapping[str, float]]] = []
    try:
        for run in range(1, flags.runs + 1):
            columns: dict[str, Mapping[str, float]] = {}
            for name in (flags.system, STEP):
                columns.update(measured(flags, case, name))
            found.append(columns)
            print(f"run {run}, ms per step:\n{step_table.lines(columns)}\n", flush=True)
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if flags.runs > 1:
        print(f"medians of {flags.runs} runs, ms per step:\n{step_table.lines(medians(found))}")
    return 0


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, default=datasets.ROOT / "runs/benchmarks")
    add("--system", choices=[name for name in TFPS if "ps" in name], default="tfps-1ps")
    add("--model", choices=sorted(datasets.CONFIGS), default=Case().model)
    add("--rows", type=int, default=Case().rows, help="of each table; 0 for dense_100")
    add("--batch", type=int, default=Case().batch)
    add("--runs", type=int, default=1)
    add("--seconds", type=float, default=8.0, help="least window of a run")
    add("--warm_seconds", type=float, default=3.0, help="of training before the window")
    add("--trace_seconds", type=float, default=1.0, help="behind the window")
    add("--limit_seconds", type=float, default=300.0, help="for a run, start included")
    add("--workers", type=int, default=1, help="with more than cores, operations wait for cores")
    add("--intra_op_threads", type=int, default=1, help="of every process")
    add("--inter_op_threads", type=int, default=4, help="of every process")
    return parser.parse_args()


def measured(flags: argparse.Namespace, case: Case, name: str) -> dict[str, Mapping[str, float]]:
    """What a step takes, by column of the table and by part, in ms.

    Args:
        flags: Those of `parse`.
        case: What is trained.
        name: The system.
    """
    window = Window(flags.warm_seconds, flags.seconds, flags.limit_seconds)
    with tempfile.TemporaryDirectory(prefix="tfps-benchmark-") as directory:
        job_dir = pathlib.Path(directory, "job")
        data = datasets.path(flags.data.absolute(), case)
        started = system(name, case, flags, data, job_dir)
        address: str | None = None
        if name == STEP:
            port = free_port()
            address = f"127.0.0.1:{port}"
            command = [*started.command, f"--profiler_port={port}"]
            started = System(command, started.root, started.environ)
        watch = StepWatch(job_dir, flags.trace_seconds, address)
        figures = measure(started, window, pathlib.Path(directory, "log"), watch)
    return step_table.columns(figures["taken"], figures["examples"] / case.batch)


def medians(
    runs: Sequence[Mapping[str, Mapping[str, float]]],
) -> dict[str, Mapping[str, float]]:
    """The median over runs of every cell."""
    return {
        column: {
            part: statistics.median(run[column].get(part, 0.0) for run in runs)
            for part in {part for run in runs for part in run[column]}
        }
        for column in runs[0]
    }


if __name__ == "__main__":
    sys.exit(main())
