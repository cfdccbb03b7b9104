"""Measures how cost grows: `python -m benchmarks.growth --output=growth.jsonl`.

The DLRM on more workers, more ps, larger tables, larger batches, and with the ps behind a line.
Steps also wait, since cores are few here: so workers are equally fast, and what grows is what a
cluster adds. Beside it is the floor: the step of one process, and its bytes over bare sockets.
`--plots=docs` draws, which needs matplotlib. docs/scale.md has what was seen.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import tempfile

from benchmarks import datasets, machine, table
from benchmarks.cases import STEP, WIRE
from benchmarks.cases import Case as Model
from benchmarks.failure import Failed
from benchmarks.growth_cases import AXES, CLUSTER, Case, floor, planned
from benchmarks.measurement import Window, measure
from benchmarks.models import CATEGORICALS
from benchmarks.results import CPU, Results
from benchmarks.suite import names, stop
from benchmarks.systems import System

_WINDOW = Window(warm_seconds=2.0, seconds=5.0, limit_seconds=300.0)
_RECORDS = 100_000
_CONFIG = "--config=benchmarks/waiting_dlrm.py"
_NO_TASKS = ("launcher", "other")


def main() -> int:
    """Measures what is missing, prints, draws; returns the exit code."""
    flags = parse()
    signal.signal(signal.SIGTERM, stop)
    try:
        results = Results(flags.output, Case)
        kept = {name: getattr(flags, name) for name in ("dim", "step_seconds")}
        results.begin({"machine": machine.facts(sys.executable), **kept})
        for run in range(1, flags.runs + 1):
            for case, system in planned(flags.axes):
                if not results.has(case, system, run):
                    measure_one(flags, results, case, system, run)
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(report(results, flags.axes))
    if flags.plots:
        from benchmarks import growth_plots

        print(growth_plots.draw(results, flags.axes, flags.step_seconds, flags.plots))
    return 0


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--output", type=pathlib.Path, required=True, help="JSON lines; runs in it are kept")
    add("--data", type=pathlib.Path, default=datasets.ROOT / "runs/benchmarks")
    add("--axes", type=names, default=list(AXES), help=f"of {', '.join(AXES)}")
    add("--runs", type=int, default=1, help="of each case")
    add("--dim", type=int, default=4, help="of rows: 10^8 of 4 values with their slots are 3.2 GB")
    add("--step_seconds", type=float, default=0.1, help="that a step waits beside what it computes")
    add("--plots", type=pathlib.Path, help="directory to draw into")
    flags = parser.parse_args()
    if unknown := set(flags.axes) - set(AXES):
        parser.error(f"--axes: there are {', '.join(AXES)}; not {', '.join(sorted(unknown))}")
    return flags


def measure_one(
    flags: argparse.Namespace, results: Results[Case], case: Case, system: str, run: int
) -> None:
    """Keeps one run of a system."""
    data = dataset(flags.data.absolute(), case.rows)
    with tempfile.TemporaryDirectory(prefix="tfps-benchmark-") as directory:
        started = started_as(flags, case, system, data, f"{directory}/job")
        found = measure(started, _WINDOW, pathlib.Path(directory, "log"))
    # What starts the tasks, and stands for a line between them, is no part of a cluster.
    of_tasks = [
        seconds
        for task, seconds in found["cpu_seconds"].items()
        if task.partition("-")[0] not in _NO_TASKS
    ]
    found[CPU] = round(sum(of_tasks) / found["examples"] * 1e6, 2)
    results.add(case, system, run, {**found, "commit": machine.commit()})
    print(
        f"run {run} {case.name} {system}: {found[table.SPEED]:,.0f} examples/s, {found[CPU]:.1f} "
        f"CPU-s per million, {found['others_cores']:.2f} cores used by others",
        flush=True,
    )


def started_as(
    flags: argparse.Namespace, case: Case, system: str, data: pathlib.Path, job_dir: str
) -> System:
    """What is started for a system on a case."""
    rows = rows_per_table(case.rows)
    threads = ["--intra_op_threads=1", "--inter_op_threads=4"]
    if system == WIRE:
        command = [
            *(sys.executable, "-m", "benchmarks.peers.start", "wire", f"--data={data}"),
            *(f"--rows={rows}", f"--dim={flags.dim}", f"--batch={case.batch}", "--workers=1"),
        ]
        return System(command, "launcher")
    waits = flags.step_seconds if system == CLUSTER else 0.0
    job = [
        *(_CONFIG, f"--task.rows_per_table={rows}", f"--task.dim={flags.dim}"),
        *(f"--task.step_seconds={waits}", f"--train.batch_size={case.batch}"),
        *(f"--data.train={data}", f"--job_dir={job_dir}", *threads),
        *("--progress=lines", "--progress_seconds=0.5"),
    ]
    if system == STEP:
        return System([sys.executable, "-m", "trainer.task", "--mode.name=local", *job], "chief-0")
    tasks = [f"--workers={case.workers}"]
    if not case.gbits:
        launcher = [sys.executable, "-m", "cloud.local", *tasks, f"--ps={case.ps}"]
        return System([*launcher, "--", *job], "launcher")
    line = [sys.executable, "-m", "benchmarks.emulated_line", f"--gbits={case.gbits}", *tasks]
    return System(["unshare", "--map-root-user", "--net", *line, "--", *job], "launcher")


def rows_per_table(rows: int) -> int:
    """Of each table."""
    return round(rows / CATEGORICALS)


def dataset(parent: pathlib.Path, rows: int) -> pathlib.Path:
    """Records for tables of so many rows together, made unless they are there."""
    each = rows_per_table(rows)
    directory = parent / f"growth-{each}"
    if not directory.exists():
        parent.mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "benchmarks.make_dataset", f"--output={directory}"),
            *(*datasets.config_flags(Model(rows=each)), f"--records={_RECORDS}"),
        ]
        subprocess.run(command, cwd=datasets.ROOT, check=True)
    return directory


def report(results: Results[Case], axes: list[str]) -> str:
    """A table for each axis."""
    parts = []
    header = ["", "examples/s", "CPU-s per million examples", "of its floor", "peak memory, MB"]
    for axis in axes:
        lines = []
        for case in AXES[axis]:
            runs = results.runs[case, CLUSTER].values()
            least = floor(results, case)
            cpu = results.spread(case, CLUSTER, CPU)
            lines.append(
                [
                    title(axis, case),
                    table.number(results.spread(case, CLUSTER, table.SPEED), 0),
                    table.number(cpu, 1),
                    f"{cpu.median / least:.2f}" if least else "",
                    table.peaks(runs),
                ]
            )
        parts.append(f"### {axis}\n\n{table.markdown(header, lines)}")
    return "\n\n".join([*parts, table.disturbance(results)])


def title(axis: str, case: Case) -> str:
    """A case on an axis."""
    if axis != "line":
        return f"{getattr(case, axis):,}"
    line = f"{case.gbits} Gbit/s, 0.5 ms" if case.gbits else "loopback"
    return f"{line}, {case.workers} workers"


if __name__ == "__main__":
    sys.exit(main())
