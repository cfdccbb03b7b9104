"""Measures reading alone beside a training step: `python -m benchmarks.input`.

Reading alone: every batch of a worker's pipeline - read, shuffled, parsed - and nothing done with
it. A step: the same records trained in one process (`tfps-local`). They take turns; each figure is
CPU time over all threads, so that it says what one core manages. See benchmarks/README.md.
"""

import argparse
import itertools
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import tensorflow as tf

from benchmarks import datasets, table
from benchmarks.cases import Case
from benchmarks.measurement import Failed, Window, measure
from benchmarks.systems import system
from configs import criteo
from tfps.data import examples, manifest
from tfps.data.manifest import Manifest
from tfps.data.record_source import Batching, RecordSource, read_batches
from tfps.leases.lease import EpochOrder

_BATCH = Case().batch


def main() -> int:
    """Measures in turn, prints a table; returns the exit code."""
    flags = parse()
    tf.config.threading.set_intra_op_parallelism_threads(flags.intra_op_threads)
    tf.config.threading.set_inter_op_parallelism_threads(flags.inter_op_threads)
    case = Case()
    datasets.ensure(flags.data, case)
    path = datasets.path(flags.data, case).absolute()
    stages = pipelines(manifest.read(str(path)))
    figures: dict[str, list[float]] = {name: [] for name in [*stages, "step"]}
    window = Window(flags.warm_seconds, flags.seconds, limit_seconds=300.0)
    try:
        for run in range(flags.runs):
            for name, make in stages.items():
                figures[name].append(cpu_seconds_per_million(make(), flags.seconds))
            with tempfile.TemporaryDirectory(prefix="tfps-benchmark-") as directory:
                job = pathlib.Path(directory)
                trained = measure(
                    system("tfps-local", case, flags, path, job / "job"), window, job / "log"
                )
            figures["step"].append(trained[table.CPU])
            told = ", ".join(f"{name} {values[-1]:.2f}" for name, values in figures.items())
            print(f"run {run + 1}, CPU-s per million examples: {told}", flush=True)
    except Failed as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(summary(figures))
    return 0


def parse() -> argparse.Namespace:
    """Parses the flags."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, default=datasets.ROOT / "runs/benchmarks")
    add("--runs", type=int, default=3)
    add("--seconds", type=float, default=5.0, help="least window of a measurement")
    add("--warm_seconds", type=float, default=3.0, help="of training before its window")
    add("--intra_op_threads", type=int, default=1)
    add("--inter_op_threads", type=int, default=4)
    return parser.parse_args()


def pipelines(data: Manifest) -> dict[str, Callable[[], tf.data.Dataset]]:
    """What reading consists of, each with all that comes before it; datasets of batches."""
    experiment = criteo.get_config()
    schema = experiment.task.schema()
    source = RecordSource(data.path_of(data.shards[0])).tensors()
    seed = tf.constant(0, tf.int64)
    batching = Batching(schema, _BATCH, EpochOrder.of(experiment).block_batches)

    def read() -> tf.data.Dataset:
        return source.from_record(0).batch(_BATCH)

    return {
        "read": read,
        "read + parse": lambda: read().map(lambda text: examples.parse(text, *schema)),
        "read + shuffle + parse": lambda: read_batches(source, batching, seed),
    }


def cpu_seconds_per_million(dataset: tf.data.Dataset, seconds: float) -> float:
    """CPU time per million examples of a pipeline that is read again and again."""
    iterator = iter(dataset.repeat())
    next(iterator)
    count, cpu, began = 0, time.process_time(), time.monotonic()
    while time.monotonic() - began < seconds:
        count += sum(_BATCH for _ in itertools.islice(iterator, 50))
    return (time.process_time() - cpu) / count * 1e6


def summary(figures: dict[str, list[float]]) -> str:
    """Medians with least and greatest, and each beside the step's run of the same turn."""
    lines = [f"\n{'':24}{'CPU-s per M':>12}{'':>18}{'examples/s and core':>22}{'of a step':>11}"]
    for name, values in figures.items():
        median = statistics.median(values)
        pairs = zip(values, figures["step"], strict=True)
        share = statistics.median(one / step for one, step in pairs)
        spread = f"({min(values):.2f}-{max(values):.2f})"
        lines.append(f"{name:24}{median:12.2f}{spread:>18}{1e6 / median:22,.0f}{share:11.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
