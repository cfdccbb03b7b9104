"""Measures tfps next to other systems: `python -m benchmarks.suite --output=results.jsonl`.

All systems train the same model on the same records, one system at a time, interleaved: every
system and case of run 1, then those of run 2, … The same command resumes an interrupted
measurement. See benchmarks/README.md.
"""

import argparse
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from benchmarks import datasets, machine, table
from benchmarks.cases import FIT, SWEEPS, SYSTEMS, TFPS, Case, planned
from benchmarks.measurement import Failed, Window, measure
from benchmarks.results import Results
from benchmarks.systems import system

LEAST_SECONDS = 3.0
_MODULES_OF_PEERS = {
    "torch-rpc": "torch",
    "torch-rpc-files": "torch",
    "torch-ddp": "torch",
    "torch-ddp-files": "torch",
    "torchrec": "torchrec",
    "torchrec-files": "torchrec",
    "torchrec-dmp": "torchrec",
    "tutorial-keras": "keras",
    "wire": "numpy",
}


def main() -> int:
    """Measures what is missing, prints the tables; returns the exit code."""
    flags = parse()
    signal.signal(signal.SIGTERM, stop)
    try:
        check(flags)
        work = [
            (case, names)
            for case, names in planned(flags.sweep, flags.only, flags.systems)
            if names
        ]
        check_peers(flags, work)
        results = Results(flags.output, Case)
        results.begin(settings(flags))
        for case, _ in work:
            datasets.ensure(flags.data, case)
        failures = measure_all(flags, work, results)
        if results.runs:
            reference = flags.systems[0] if flags.systems else SYSTEMS[0]
            print(f"\n{table.report(results, reference)}")
        for failure in failures:
            print(f"failed: {failure}", file=sys.stderr)
        return 1 if failures else 0
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--output", type=pathlib.Path, required=True, help="JSON lines; runs in it are kept")
    add(
        "--data", type=pathlib.Path, default=datasets.ROOT / "runs/benchmarks", help="kept datasets"
    )
    add("--sweep", type=names, default=["base"], help=f"of {', '.join(SWEEPS)}; or all")
    add("--only", type=names, default=[], help="parts of names of cases, for example rows=200000")
    add(
        "--systems", type=names, default=[], help=f"instead of the usual ones: {', '.join(SYSTEMS)}"
    )
    add("--runs", type=int, default=3, help="of each system and case; 0 only makes the datasets")
    add("--seconds", type=float, default=10.0, help="least window of a run")
    add("--warm_seconds", type=float, default=3.0, help="of training before the window")
    add("--limit_seconds", type=float, default=300.0, help="for a run, start included")
    add("--peer_python", default=sys.executable, help="interpreter with tf_keras and torch")
    add("--workers", type=int, default=2)
    add("--intra_op_threads", type=int, default=1, help="of every process of every system")
    add("--inter_op_threads", type=int, default=4, help="of every process of every system")
    flags = parser.parse_args()
    if flags.sweep == ["all"]:
        flags.sweep = list(SWEEPS)
    return flags


def names(text: str) -> list[str]:
    """A list, from text with commas."""
    return text.split(",")


def stop(number: int, _: Any) -> NoReturn:
    """Ends on SIGTERM as on Ctrl-C: what was started is ended first."""
    raise SystemExit(128 + number)


def check(flags: argparse.Namespace) -> None:
    """Refuses flags that could only fail later."""
    for flag, known in (("sweep", SWEEPS), ("systems", SYSTEMS)):
        for name in getattr(flags, flag):
            if name not in known:
                raise Failed(f"--{flag}={name}: there are {', '.join(known)}")
    if flags.runs < 0 or flags.workers < 1:
        raise Failed(f"--runs={flags.runs} --workers={flags.workers}: too few")
    if flags.seconds < LEAST_SECONDS:
        raise Failed(f"--seconds={flags.seconds} must be at least {LEAST_SECONDS}")
    if not flags.output.resolve().parent.is_dir():
        raise Failed(f"--output={flags.output}: there is no directory for it")


def check_peers(flags: argparse.Namespace, work: Sequence[tuple[Case, Sequence[str]]]) -> None:
    """Refuses to measure nothing, or peers that are not installed."""
    if not work:
        raise Failed(f"--only={','.join(flags.only)}: no case has that in its name")
    if shutil.which(flags.peer_python) is None:
        raise Failed(f"--peer_python={flags.peer_python}: no such program")
    peers = {name for _, chosen in work for name in chosen} - {*TFPS, FIT}
    modules = {_MODULES_OF_PEERS.get(name, "tf_keras") for name in peers}
    if missing := absent(flags.peer_python, modules):
        raise Failed(
            f"--peer_python={flags.peer_python} has no {', '.join(missing)}; install it there, or "
            "name another interpreter"
        )


def absent(python: str, modules: set[str]) -> list[str]:
    """The modules that an interpreter does not have."""
    code = "import importlib.util as u, sys;print(*[n for n in sys.argv[1:] if not u.find_spec(n)])"
    command = [python, "-c", code, *sorted(modules)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def settings(flags: argparse.Namespace) -> dict[str, Any]:
    """What has to be equal for all runs of a file."""
    kept = ("workers", "intra_op_threads", "inter_op_threads", "seconds", "warm_seconds")
    facts = machine.facts(flags.peer_python)
    return {"machine": facts, **{name: getattr(flags, name) for name in kept}}


def measure_all(
    flags: argparse.Namespace, work: Sequence[tuple[Case, Sequence[str]]], results: Results
) -> list[str]:
    """Runs what the results do not have yet; returns what failed, in a person's words."""
    window = Window(flags.warm_seconds, flags.seconds, flags.limit_seconds)
    failures = []
    for run in range(1, flags.runs + 1):
        for case, chosen in work:
            for name in chosen:
                if results.has(case, name, run):
                    continue
                began = time.monotonic()
                try:
                    figures = measure_one(flags, case, name, window)
                except Failed as failure:
                    failures.append(f"run {run}, {case.name}, {name}: {failure}")
                    print(f"run {run} {case.name} {name}: failed", flush=True)
                    continue
                results.add(case, name, run, figures)
                others = figures["others_cores"] + figures["stolen_cores"]
                print(
                    f"run {run} {case.name} {name}: {figures[table.SPEED]:,.0f} examples/s, "
                    f"{figures[table.CPU]:,.1f} CPU-s per million, {others:.2f} cores used by "
                    f"others; took {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    return failures


def measure_one(flags: argparse.Namespace, case: Case, name: str, window: Window) -> dict[str, Any]:
    """One run of one system, its traces in a directory that is removed."""
    with tempfile.TemporaryDirectory(prefix="tfps-benchmark-") as directory:
        data = datasets.path(flags.data.absolute(), case)
        job_dir = pathlib.Path(directory, "job")
        started = system(name, case, flags, data, job_dir)
        figures = measure(started, window, pathlib.Path(directory, "log"))
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {**figures, "when": when, "commit": machine.commit()}


if __name__ == "__main__":
    sys.exit(main())
