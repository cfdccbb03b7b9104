"""Measures `trainer.predict` beside Keras's `predict`: `python -m benchmarks.predict`.

The same records and model in CSV, Parquet and TFRecords, each written to CSV or Parquet. Each
program runs with few records and with many; the difference is what the records cost, without the
start. Programs take turns. See benchmarks/README.md.
"""

import argparse
import csv
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow
import pyarrow.parquet
import tensorflow as tf

import tfps
from benchmarks.datasets import ROOT
from benchmarks.planted import likes
from benchmarks.rare_ids import FEATURES, LABEL, build
from tfps.export.exported_files import FORMAT, SCHEMA_FILE

_INPUTS = {"csv": "rows.csv", "parquet": "rows.parquet", "tfrecord": "dataset"}
_ROUTES = ("csv → csv", "csv → parquet", "parquet → csv", "parquet → parquet", "tfrecord → csv")


class Cost(NamedTuple):
    """What a program, or a million records, takes.

    Attributes:
        seconds: Of time.
        cpu: CPU-seconds of all threads.
    """

    seconds: float
    cpu: float


def main() -> None:
    flags = _parse()
    with tempfile.TemporaryDirectory(prefix="tfps-predict-") as directory:
        root = pathlib.Path(directory)
        _export(root)
        for name, count in (("few", flags.few), ("many", flags.rows)):
            _write(root / name, count)
        systems = _systems(root, flags.before)
        for command, where in systems.values():
            _run(root / "few", command, where)  # compiles, and fills the system's caches
        costs: dict[str, list[Cost]] = {name: [] for name in systems}
        for run in range(flags.runs):
            for name, (command, where) in systems.items():
                costs[name].append(_cost(root, command, where, flags.rows - flags.few))
                print(f"run {run + 1}: {name}: {costs[name][-1]}", flush=True)
    print(_table(costs))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--few", type=int, default=4_096, help="rows of the run that is taken off")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--before", type=pathlib.Path, help="a checkout of another commit, measured from CSV to CSV"
    )
    return parser.parse_args()


def _export(root: pathlib.Path) -> None:
    """The model as Keras's file, and as training exports one."""
    model = build()
    model.save(root / "model.keras")

    @tf.function(autograph=False)
    def serve(**values: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = [values[feature.name] for feature in FEATURES]
        return {"predictions": model(inputs, training=False)[:, 0]}

    specs = {each.name: tf.TensorSpec([None], each.dtype, each.name) for each in FEATURES}
    module = tf.Module()
    module.model = model
    signatures = {"serving_default": serve.get_concrete_function(**specs)}
    tf.saved_model.save(module, str(root / "export"), signatures=signatures)
    schema = {
        "format": FORMAT,
        "features": [feature.schema() for feature in FEATURES],
        "labels": [LABEL.schema()],
        "converted": [],
        "signatures": {"serving_default": "features"},
        "sizes": {},
        "arguments": {},
        "tables": [],
    }
    (root / "export" / SCHEMA_FILE).write_text(json.dumps(schema))


def _write(directory: pathlib.Path, count: int) -> None:
    """The records in every format."""
    directory.mkdir()
    columns = likes(0, count)
    with (directory / _INPUTS["csv"]).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    pyarrow.parquet.write_table(pyarrow.table(columns), directory / _INPUTS["parquet"])
    features = {feature.name: columns[feature.name] for feature in FEATURES}
    tfps.write_dataset(
        str(directory / _INPUTS["tfrecord"]),
        features,
        columns[LABEL.name],
        features=FEATURES,
        label=LABEL,
        shards=1,
    )


def _systems(
    root: pathlib.Path, before: pathlib.Path | None
) -> dict[str, tuple[list[str], pathlib.Path]]:
    """By name: a command, of which `ROWS` stands for few or many, and where it runs."""
    keras = ["benchmarks.peers.keras_predict", f"{root}/model.keras", "ROWS/rows.csv"]
    systems = {"keras: csv → csv": ([*keras, f"{root}/out.csv"], ROOT)}

    def route(name: str) -> list[str]:
        source, target = name.split(" → ")
        flags = [f"--model={root}/export", f"--data=ROWS/{_INPUTS[source]}", "--overwrite"]
        return ["trainer.predict", *flags, f"--output={root}/out.{target}"]

    if before:
        systems["before: csv → csv"] = route(_ROUTES[0]), before
    systems.update({f"tfps: {name}": (route(name), ROOT) for name in _ROUTES})
    return systems


def _cost(root: pathlib.Path, command: list[str], where: pathlib.Path, rows: int) -> Cost:
    """What a million rows cost, of so many more rows."""
    few, many = (_run(root / count, command, where) for count in ("few", "many"))
    return Cost((many.seconds - few.seconds) / rows * 1e6, (many.cpu - few.cpu) / rows * 1e6)


def _run(data: pathlib.Path, command: list[str], where: pathlib.Path) -> Cost:
    """What a program takes for the records of a directory."""
    words = [word.replace("ROWS", str(data)) for word in command]
    cpu, began = _children_cpu(), time.monotonic()
    subprocess.run([sys.executable, "-m", *words], cwd=where, check=True, capture_output=True)
    return Cost(time.monotonic() - began, _children_cpu() - cpu)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _table(costs: Mapping[str, list[Cost]]) -> str:
    lines = [f"\n{'':24}{'rows/s':>12}{'CPU-s per million rows':>36}"]
    for name, found in costs.items():
        rows = 1e6 / statistics.median(each.seconds for each in found)
        cpu = [each.cpu for each in found]
        spread = f"({min(cpu):.2f}-{max(cpu):.2f})"
        lines.append(f"{name:24}{rows:12,.0f}{statistics.median(cpu):18.2f}{spread:>18}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
