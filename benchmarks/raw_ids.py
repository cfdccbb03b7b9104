"""Holds ways to keep rows of ids that are any 64 bits side by side: `python -m benchmarks.raw_ids`.

The same model, optimizer and planted records, most of whose ids are seldom: with a vocabulary that
has all ids; with keys that get a row when they are first seen, or seen for the third time, and have
zeros before or a row that they train together; and with ids that are hashed into a quarter of the
rows. The figure is the AUC on records that were not trained, beside what the planted signal allows
whoever tells all ids apart, and whoever sees four of them as one. See benchmarks/README.md.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

import tfps
from benchmarks import raw_id_tables
from benchmarks.keys_of_numbers import keys_of
from benchmarks.planted import ITEMS, USERS, Columns, likes, shares, truth
from benchmarks.rare_ids import LABEL
from benchmarks.raw_id_tables import HASHED, KEYS, PER_ROW, VOCABULARY
from tfps.experiment.metrics import auc

Floats = npt.NDArray[np.float64]
WAYS = {
    "a vocabulary": (VOCABULARY, 1, "zeros"),
    "keys": (KEYS, 1, "zeros"),
    "keys, admit_after=3": (KEYS, 3, "zeros"),
    "keys, admit_after=3, unknown=trained": (KEYS, 3, "trained"),
    "hashed into a quarter": (HASHED, 1, "zeros"),
}
_CONFIG = "benchmarks/raw_id_tables.py"
_EVALUATED = 1 << 20  # the seed of the records that are not trained
_CHUNK = 1000


def main() -> int:
    """Trains with every seed and prints a table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000, help="that are trained")
    parser.add_argument("--epochs", type=int, default=3)
    flags = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    rest = likes(_EVALUATED, flags.records // 4)
    with tempfile.TemporaryDirectory(prefix="tfps-raw-ids-") as directory:
        root = pathlib.Path(directory)
        for name, records in (("train", likes(0, flags.records)), ("eval", rest)):
            for tables in (VOCABULARY, KEYS):
                _write(root / f"{name}-{tables}", tables, records)
        for seed in range(flags.seeds):
            for way in WAYS:
                found[way].append(_trained(root, seed, way, flags.epochs))
            told = ", ".join(f"{way} {runs[-1]['auc']:.4f}" for way, runs in found.items())
            print(f"seed {seed}: AUC {told}", flush=True)
    exact = auc(rest["liked"], truth().chances(rest["user"], rest["item"]))
    allowed = {way: exact for way in WAYS} | {"hashed into a quarter": _auc_of_shared(rest)}
    print("\n".join(_table(found, allowed)))
    return 0


def _write(path: pathlib.Path, tables: str, records: Columns) -> None:
    task = raw_id_tables.Likes(tables=tables)
    ids = {name: records[name].astype(np.int64) for name in ("user", "item")}
    if tables != VOCABULARY:
        ids = {name: keys_of(some + 1) for name, some in ids.items()}
    tfps.write_dataset(
        str(path), ids, records["liked"], features=task.features(), label=LABEL, shards=1
    )


def _trained(root: pathlib.Path, seed: int, way: str, epochs: int) -> dict[str, float]:
    """The AUC that a job ends at, its rows, and what was dropped."""
    tables, admit_after, unknown = WAYS[way]
    ids = VOCABULARY if tables == VOCABULARY else KEYS
    job = root / f"{way}-{seed}"
    flags = [
        f"--config={_CONFIG}",
        f"--data.train={root / f'train-{ids}'}",
        f"--data.eval={root / f'eval-{ids}'}",
        f"--job_dir={job}",
        f"--train.seed={seed}",
        f"--train.epochs={epochs}",
        f"--task.tables={tables}",
        f"--task.admit_after={admit_after}",
        f"--task.unknown={unknown}",
    ]
    command = [sys.executable, "-m", "trainer.task", "--mode.name=local", *flags]
    subprocess.run(command, check=True, capture_output=True)
    report: dict[str, Any] = json.loads((job / "report.json").read_text())
    keys = (report["keys"] or {}).values()
    rows = {VOCABULARY: 2 * (USERS + ITEMS), HASHED: 2 * (USERS + ITEMS) // PER_ROW}
    return {
        "auc": report["metrics"]["auc"],
        "rows": rows.get(tables, sum(each["rows"] for each in keys)),
        "dropped": sum(each["dropped"] for each in keys),
    }


def _auc_of_shared(records: Columns) -> float:
    """The best AUC where ids are told apart by their rows alone, of which each has four."""
    draw = np.random.default_rng(3)
    users, items = (_members(draw.integers(0, n // PER_ROW, n)) for n in (USERS, ITEMS))
    chances = []
    for first in range(0, len(records["user"]), _CHUNK):
        user, user_share = (each[records["user"][first : first + _CHUNK]] for each in users)
        item, item_share = (each[records["item"][first : first + _CHUNK]] for each in items)
        of_pairs = truth().chances(user[:, :, None], item[:, None, :])
        chances.append((of_pairs * user_share[:, :, None] * item_share[:, None, :]).sum((1, 2)))
    return auc(records["liked"], np.concatenate(chances))


def _members(row: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Floats]:
    """For each id those that share its row, and each one's share of their records, `[ids, most]`.

    Args:
        row: Of each id.
    """
    most = int(np.bincount(row).max())
    ids, share = np.zeros([len(row), most], np.int64), np.zeros([len(row), most])
    of_all = shares(len(row))
    for one in np.unique(row):
        mine = np.flatnonzero(row == one)
        ids[mine, : len(mine)] = mine
        share[mine, : len(mine)] = of_all[mine] / of_all[mine].sum()
    return ids, share


def _table(found: dict[str, list[dict[str, float]]], allowed: dict[str, float]) -> list[str]:
    lines = [
        "| ids | AUC (least-greatest) | beside a vocabulary | the signal allows | rows | dropped |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    reference = statistics.mean(run["auc"] for run in found["a vocabulary"])
    for way, runs in found.items():
        aucs = [run["auc"] for run in runs]
        mean = statistics.mean(aucs)
        spread = f"{mean:.4f} ({min(aucs):.4f}-{max(aucs):.4f})"
        rest = f"{runs[0]['rows']:,.0f} | {runs[0]['dropped']:,.0f}"
        lines.append(
            f"| {way} | {spread} | {mean - reference:+.4f} | {allowed[way]:.4f} | {rest} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
