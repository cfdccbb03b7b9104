"""Measures predictions on a cluster: `python -m benchmarks.cluster_predict`.

Trains a dataset on a cluster for an epoch, then predicts it on the same cluster (`--job=predict`),
and in one process (`trainer.predict` of the exported model); each with two sizes of data, so that
what is left of the difference is what records cost, without the start. See docs/predict.md.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from benchmarks.datasets import ROOT

TRAINING, CLUSTER, ONE = "training", "predicting on the cluster", "trainer.predict"
CONFIG = "--config=configs/criteo.py"


class Cost(NamedTuple):
    """What a run took.

    Attributes:
        seconds: From its begin to its end.
        cpu: CPU-seconds of all its processes.
    """

    seconds: float
    cpu: float


def main() -> int:
    """Prints a JSON line per way; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=100_000, help="of each of 26 tables")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ps", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--form", default="parquet", help="of the output: parquet or csv")
    parser.add_argument("--batch_size", type=int, default=512, help="of the training")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        sizes = flags.records // 4, flags.records
        for records in sizes:
            generate(flags, directory, records)
        found: dict[str, list[dict[int, Cost]]] = {TRAINING: [], CLUSTER: [], ONE: []}
        for run in range(flags.runs):
            for way in found:
                costs = {records: measure(flags, directory, way, records, run) for records in sizes}
                found[way].append(costs)
                print(json.dumps({"way": way, "costs": list(costs.items())}), file=sys.stderr)
    small, large = sizes
    figures = {way: rates(costs, small, large) for way, costs in found.items()}
    for way, each in figures.items():
        print(json.dumps({"way": way, **each}))
    speed, per_core = "records_per_second", "records_per_cpu_second"
    print(
        json.dumps(
            {
                "beside training, records per second": ratio(figures, CLUSTER, TRAINING, speed),
                "beside trainer.predict, per CPU-second": ratio(figures, CLUSTER, ONE, per_core),
            }
        )
    )
    return 0


def generate(flags: argparse.Namespace, directory: pathlib.Path, records: int) -> None:
    more = [f"--records={records}", "--shards=16", f"--output={directory / str(records)}"]
    run("trainer.generate", CONFIG, rows(flags), *more)


def measure(
    flags: argparse.Namespace, directory: pathlib.Path, way: str, records: int, number: int
) -> Cost:
    """What one run takes."""
    data, trained = directory / str(records), directory / f"job-{records}-{number}"
    own = [CONFIG, rows(flags), f"--train.batch_size={flags.batch_size}"]
    cluster = ["cloud.local", f"--workers={flags.workers}", f"--ps={flags.ps}", "--"]
    if way == TRAINING:
        more = [f"--data.train={data}", f"--job_dir={trained}", "--train.epochs=1"]
        return run(*cluster, *own, *more)
    if way == CLUSTER:
        more = [f"--job_dir={trained}-predictions", f"--output_form={flags.form}", f"--data={data}"]
        return run(*cluster, *own, "--job=predict", f"--checkpoint={trained}", *more)
    more = [f"--data={data}", f"--output={trained}.{flags.form}"]
    return run("trainer.predict", f"--model={trained}/export", *more)


def rows(flags: argparse.Namespace) -> str:
    return f"--task.rows_per_table={flags.rows}"


def run(module: str, *argv: str) -> Cost:
    """Runs a program with all its processes to its end."""
    before, began = cpu_of_children(), time.monotonic()
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(
        [sys.executable, "-m", module, *argv],
        cwd=ROOT,
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{module} {' '.join(argv)}: {done.stderr[-3000:]}{done.stdout[-3000:]}")
    return Cost(time.monotonic() - began, cpu_of_children() - before)


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def rates(costs: list[dict[int, Cost]], small: int, large: int) -> dict[str, Any]:
    """Records by seconds and CPU-seconds that more records take: median, least and most."""
    found = {}
    for name, field in (("records_per_second", "seconds"), ("records_per_cpu_second", "cpu")):
        each = [
            (large - small) / (getattr(run[large], field) - getattr(run[small], field))
            for run in costs
        ]
        found[name] = [round(value) for value in (statistics.median(each), min(each), max(each))]
    return found


def ratio(figures: dict[str, dict[str, Any]], way: str, other: str, name: str) -> float:
    return round(figures[way][name][0] / figures[other][name][0], 3)


if __name__ == "__main__":
    sys.exit(main())
