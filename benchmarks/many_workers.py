"""Measures twelve real workers on one core: `python -m benchmarks.many_workers`.

A cluster trains Criteo's columns once, with all its processes on one core: so what is measured is
what they cost together, whatever the machine. `--tree` names other checkouts to measure in turn.
The start-up, with the end, is what a run takes beside its steps in their steady state, as its
report has it. See docs/scale.md.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.cluster_predict import cpu_of_children
from benchmarks.datasets import ROOT

BATCH = 64
LIMIT_SECONDS = 900
CONFIG = ("--config=configs/criteo.py", "--task.rows_per_table=1000")


def main() -> int:
    """Prints a JSON line for each run, then one for each checkout; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--tree", type=pathlib.Path, action="append", help="a checkout; default: this one")
    add("--workers", type=int, default=12)
    add("--ps", type=int, default=2)
    add("--steps", type=int, default=2_400)
    add("--runs", type=int, default=3)
    add("--core", type=int, default=0)
    flags = parser.parse_args()
    trees = [tree.absolute() for tree in flags.tree or [ROOT]]
    os.sched_setaffinity(0, {flags.core})  # and all that it starts
    found: dict[pathlib.Path, list[dict[str, float]]] = {tree: [] for tree in trees}
    for run in range(flags.runs):
        for tree in trees:
            found[tree].append(measured(tree, flags))
            print(json.dumps({"tree": str(tree), "run": run, **found[tree][-1]}), flush=True)
    for tree, runs in found.items():
        spread = {
            name: [round(x, 2) for x in (statistics.median(each), min(each), max(each))]
            for name in runs[0]
            if (each := [values[name] for values in runs])
        }
        print(json.dumps({"tree": str(tree), "median, least, most": spread}))
    return 0


def measured(tree: pathlib.Path, flags: argparse.Namespace) -> dict[str, float]:
    """What one run takes, in seconds and in milliseconds for a step of one worker."""
    with tempfile.TemporaryDirectory(prefix="tfps-workers-") as name:
        data, job_dir = pathlib.Path(name, "data"), pathlib.Path(name, "job")
        records = flags.steps * BATCH
        size = f"--records={records}", f"--shards={4 * flags.workers}", f"--output={data}"
        run(tree, "trainer.generate", *CONFIG, *size)
        cluster = f"--workers={flags.workers}", f"--ps={flags.ps}", "--"
        train = f"--train.batch_size={BATCH}", "--train.epochs=1"
        own = f"--data.train={data}", f"--job_dir={job_dir}", *train, "--connect_seconds=600"
        began, before = time.monotonic(), cpu_of_children()
        run(tree, "cloud.local", *cluster, *CONFIG, *own)
        seconds, cpu = time.monotonic() - began, cpu_of_children() - before
        report = json.loads((job_dir / "report.json").read_text())
    assert report["status"] == "finished", report
    assert report["examples"]["trained"] == records, report["examples"]
    speed = report["examples_per_second"]
    return {
        "start_and_end_seconds": seconds - records / speed,
        "step_milliseconds": 1000 * BATCH / speed,
        "cpu_seconds": cpu,
    }


def run(tree: pathlib.Path, module: str, *argv: str) -> None:
    """Runs a program of a checkout to its end."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-m", module, *argv],
        cwd=tree,
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    if done.returncode:
        raise SystemExit(f"{module} {' '.join(argv)}: {done.stderr[-3000:]}{done.stdout[-3000:]}")


if __name__ == "__main__":
    sys.exit(main())
