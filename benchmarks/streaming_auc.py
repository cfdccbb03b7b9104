"""Holds the AUC of bounded memory against the exact one: `python -m benchmarks.streaming_auc`.

A model is trained quickly on the census data (`--census=DIR` with adult.data and adult.test, left
out without it) and on Criteo's columns with a planted signal, and predicts records that it has not
seen. Their scores are counted up with several limits to how many are exact: in the order of the
records, and sorted, in which the first scores say nothing of the rest. See docs/evaluation.md.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow.parquet as parquet

from benchmarks.datasets import ROOT
from tfps.evaluation.running_auc import EXACT_RECORDS, RunningAuc
from tfps.experiment.metrics import auc

LIMITS = (1_000, 4_096, 65_536, EXACT_RECORDS)
PART = 4_096  # records that are added at once, fewer where the limit is lower
CENSUS, CRITEO = "configs/census.py", "configs/criteo.py"


def main() -> int:
    """Prints a table in Markdown; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--census", type=pathlib.Path, help="with adult.data and adult.test")
    parser.add_argument("--records", type=int, default=1_200_000, help="of planted Criteo")
    parser.add_argument("--rows", type=int, default=10_000, help="of each of its 26 tables")
    flags = parser.parse_args()
    print("| scores | order | exact up to | exact AUC | off by | bound |")
    print("|---|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="tfps-auc-") as name:
        directory = pathlib.Path(name)
        if flags.census:
            show("census", census(flags.census.absolute(), directory))
        show("planted Criteo", criteo(directory, flags.records, flags.rows))
    return 0


def census(raw: pathlib.Path, directory: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of the census's test records."""
    for name in ("data", "test"):
        more = (
            f"--input={raw / f'adult.{name}'}",
            f"--output={directory / 'census' / name}",
            "--shards=4",
        )
        run("trainer.prepare", f"--config={CENSUS}", *more)
    data = directory / "census" / "data", directory / "census" / "test"
    return predictions(directory / "census", *data, f"--config={CENSUS}")


def criteo(directory: pathlib.Path, records: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of records that are planted; a quarter as many are trained."""
    config = [f"--config={CRITEO}", f"--task.rows_per_table={rows}"]
    for name, count, seed in (("data", records // 4, 0), ("test", records, 1)):
        output = directory / "criteo" / name
        own = f"--output={output}", f"--records={count}", f"--seed={seed}", "--shards=8"
        run("trainer.generate", *config, *own)
    data = directory / "criteo" / "data", directory / "criteo" / "test"
    return predictions(directory / "criteo", *data, *config, "--train.batch_size=512")


def predictions(
    directory: pathlib.Path, data: pathlib.Path, test: pathlib.Path, *config: str
) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of a dataset, by a model that saw another one once."""
    job_dir = directory / "job"
    own = f"--data.train={data}", f"--job_dir={job_dir}", "--train.epochs=1"
    run("trainer.task", *config, *own)
    output = directory / "scores.parquet"
    run("trainer.predict", f"--model={job_dir}/export", f"--data={test}", f"--output={output}")
    table = parquet.read_table(output)
    return table["label"].to_numpy(), table["prediction"].to_numpy()


def run(module: str, *argv: str) -> None:
    """Runs a program to its end."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    command = [sys.executable, "-m", module, *argv]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **quiet}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-3000:]}{done.stdout[-3000:]}")


def show(name: str, labels_and_scores: tuple[np.ndarray, np.ndarray]) -> None:
    """Prints a line for each order and limit."""
    labels, scores = labels_and_scores
    exact = auc(labels, scores)
    for order, places in (
        ("of the records", np.arange(len(scores))),
        ("sorted", np.argsort(scores, kind="stable")),
    ):
        for limit in LIMITS:
            running = RunningAuc(limit)
            for some in np.array_split(places, -(-len(places) // min(PART, limit))):
                running.add(labels[some], scores[some])
            found = running.result()
            off = abs(found.value - exact)
            assert off <= found.bound + 1e-12, f"{name}, {order}, {limit}: {found}, not {exact}"
            print(
                f"| {name}, {len(scores):,} | {order} | {limit:,} | {exact:.6f} | "
                f"{off:.1e} | {f'{found.bound:.1e}' if found.bound else 'exact'} |"
            )


if __name__ == "__main__":
    sys.exit(main())
