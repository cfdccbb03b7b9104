"""Measures increments beside full checkpoints: `python -m benchmarks.increments`.

In one process with 1 GB of tables and slots, as on two ps: saving and restoring, in full and with
so many rows touched since. Time, CPU time over all threads, and bytes. See docs/checkpoints.md.
"""

import argparse
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from benchmarks import datasets
from configs.criteo import Criteo
from tfps.checkpoint.checkpoint import Checkpoint
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.checkpoint.retention import OldCheckpoints, Retention
from tfps.checkpoint.saver import Saver
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.evaluation.history import Evaluations
from tfps.leases.queue_state import QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore

_TASK = Criteo(rows_per_table=200_000, dim=24)  # 26 tables with Adagrad's slots: 998 MB
_SHARES = (0.001, 0.01, 0.05, 0.1, 0.3)
_DEVICES = ["/device:CPU:0"] * 2
_LIMIT_SECONDS = 600.0


def main() -> int:
    """Measures and prints; returns the exit code."""
    flags = parse()
    model = StatelessModel(_TASK, seed=0)
    store = ParameterStore(model, Rules.of(_TASK, model), _DEVICES, seed=0)
    flags.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tfps-benchmark-", dir=flags.directory) as name:
        for run in range(flags.runs):
            print(f"run {run + 1}", flush=True)
            measure(store, f"{name}/job-{run}")
    return 0


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--directory", type=pathlib.Path, default=datasets.ROOT / "runs", help="on the disk to use")
    add("--runs", type=int, default=1)
    return parser.parse_args()


def measure(store: ParameterStore, job_dir: str) -> None:
    """Prints what a full checkpoint takes, and what increments on it do."""
    directory = CheckpointDirectory(job_dir)
    old = OldCheckpoints(directory, Retention(last=1), Evaluations(job_dir))
    calls = PsCalls(TaskMonitor({}), _LIMIT_SECONDS)
    with Saver(directory, old, store, calls, in_background=False, largest_increment=1.0) as saver:
        full = show_save("full", saver, 0)
        for number, share in enumerate(touched_shares(store), start=1):
            saved = show_save(f"{share:.1%} of the rows", saver, number, full)
            timed(
                f"restore {share:.1%} with its base",
                lambda saved=saved: restore(saved, store, {}),
            )
    timed("restore full", lambda: restore(full, store, {}))


def touched_shares(store: ParameterStore) -> Iterator[float]:
    """Marks more and more rows as touched, drawn at random."""
    generator = np.random.default_rng(0)
    for share in _SHARES:
        for slice_ in store.slices():
            if slice_.touched:
                first, end = slice_.rows
                rows = generator.permutation(end - first)[: round(share * (end - first))]
                slice_.touched.forget()
                slice_.touched.mark(tf.constant(rows))
        yield share


def show_save(what: str, saver: Saver, number: int, full: Checkpoint | None = None) -> Checkpoint:
    """Saves; prints what it took."""
    saved: list[Checkpoint] = []

    def save() -> None:
        saver.begin(QueueState(number), {}, lambda: None, saved.append)
        saver.finish()

    timed(f"save {what}", save)
    size = saved[0].size
    share = f", {size / full.size:.3f} of the full one" if full else ""
    print(f"  {size / 1e6:,.1f} MB{share}", flush=True)
    return saved[0]


def timed(what: str, work: Callable[[], None]) -> None:
    """Prints how long something took."""
    began, cpu = time.monotonic(), time.process_time()
    work()
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
    print(f"{what}: {seconds:.2f} s, {cpu_seconds:.2f} CPU-s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
