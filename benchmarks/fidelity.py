"""Holds tfps against Keras's `fit` where most ids are rare: `python -m benchmarks.fidelity`.

The same model, optimizer (Adam) and records, with each seed from other initial values, which all
have: by `fit`, by `fit` with gradients that are summed by row (docs/keras.md), and by tfps with
rows that move as Keras moves them (`keras`) and rows that only move when a batch asks for them
(`lazy`). The figure is the AUC on records that were not trained. See benchmarks/README.md.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

import tfps
from benchmarks.planted import likes
from benchmarks.rare_ids import FEATURES, LABEL, get_config
from tfps.experiment.metrics import auc
from tfps.export.keras_file import trained_model
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore

_CONFIG = "benchmarks/rare_ids.py"
_EVALUATED = 1 << 20  # the seed of the records that are not trained


def main() -> int:
    """Trains with every seed and prints a table; returns the exit code."""
    flags = _parse()
    found: dict[str, list[float]] = {name: [] for name in ("fit", "by row", "keras", "lazy")}
    with tempfile.TemporaryDirectory(prefix="tfps-fidelity-") as directory:
        root = pathlib.Path(directory)
        _write(root / "eval", likes(_EVALUATED, flags.records // 4))
        _write(root / "train", likes(0, flags.records))
        for seed in range(flags.seeds):
            found["fit"].append(_fit(seed, flags.records, by_row=False))
            found["by row"].append(_fit(seed, flags.records, by_row=True))
            for updates in ("keras", "lazy"):
                found[updates].append(_tfps(root, seed, updates, flags.cluster))
            told = ", ".join(f"{name} {values[-1]:.4f}" for name, values in found.items())
            print(f"seed {seed}: AUC {told}", flush=True)
    fitted = statistics.mean(found["fit"])
    for name, values in found.items():
        mean, spread = statistics.mean(values), statistics.stdev(values)
        print(f"{name:6} {mean:.4f} (standard deviation {spread:.4f}), {mean - fitted:+.4f}")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000, help="that are trained")
    parser.add_argument(
        "--cluster", action="store_true", help="2 workers and 2 ps instead of one process"
    )
    return parser.parse_args()


def _write(path: pathlib.Path, columns: dict) -> None:
    features = {feature.name: columns[feature.name] for feature in FEATURES}
    label = columns[LABEL.name]
    # Of one shard, whose order `fit` can have too.
    tfps.write_dataset(str(path), features, label, features=FEATURES, label=LABEL, shards=1)


def _fit(seed: int, records: int, by_row: bool) -> float:
    """The AUC that Keras ends at; if `by_row`, its optimizer is given one gradient of each row."""
    keras.utils.clear_session()
    train, model = get_config().train, _begun(seed)
    if by_row:
        sum_by_row(model.optimizer)
    trained, rest = likes(0, records), likes(_EVALUATED, records // 4)
    x, new = ([some[feature.name] for feature in FEATURES] for some in (trained, rest))
    model.fit(x, trained[LABEL.name], train.batch_size, train.epochs, shuffle=False, verbose=0)
    return auc(rest[LABEL.name], model.predict(new, batch_size=4096, verbose=0))


def _begun(seed: int) -> keras.Model:
    """The model with the initial values that tfps draws from a seed."""
    task = get_config().task
    model = StatelessModel(task, seed)
    store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"], seed)
    return trained_model(task, model, store)


def sum_by_row(optimizer: keras.optimizers.Optimizer) -> None:
    """Lets an optimizer see one gradient of each row, as Keras's other backends do.

    With TensorFlow it squares that of every occurrence of an id by itself (docs/design.md).
    """
    apply = optimizer.apply

    def apply_dense(gradients: Sequence[Any], variables: Sequence[Any] | None = None) -> Any:
        return apply([tf.convert_to_tensor(each) for each in gradients], variables)

    optimizer.apply = apply_dense


def _tfps(root: pathlib.Path, seed: int, updates: str, on_cluster: bool) -> float:
    """The AUC that tfps ends at."""
    job = root / f"{updates}-{seed}"
    launcher = ["cloud.local", "--workers=2", "--ps=2", "--"]
    program = launcher if on_cluster else ["trainer.task", "--mode.name=local"]
    flags = [
        f"--config={_CONFIG}",
        f"--data.train={root / 'train'}",
        f"--data.eval={root / 'eval'}",
        f"--job_dir={job}",
        f"--train.seed={seed}",
        "--data.shuffle_buffer=0",
        f"--train.row_updates={updates}",
    ]
    command = [sys.executable, "-m", *program, *flags]
    subprocess.run(command, check=True, capture_output=True)
    report = json.loads((job / "report.json").read_text())
    return float(report["metrics"]["auc"])


if __name__ == "__main__":
    sys.exit(main())
