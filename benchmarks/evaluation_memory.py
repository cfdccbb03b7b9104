"""Measures what an evaluation's metrics hold: `python -m benchmarks.evaluation_memory`.

The chief's part of an evaluation, with labels and predictions that are drawn a shard after the
other, as the workers send them: once as the chief takes them, once with all of them gathered and
measured in the end, as any function of all labels and predictions has it. So of metrics that follow
from sums and the AUC, and of those that rank the records of 100,000 users. Each number of records
in a process of its own; memory is what its resident size has grown by at most. See
docs/evaluation.md.
"""

import argparse
import json
import multiprocessing
import multiprocessing.connection
import resource
import sys
import time

import numpy as np

import tfps
from configs.smoke import Smoke
from tfps.evaluation.accumulators import Measured as Kept
from tfps.evaluation.metrics import RunningMetrics
from tfps.experiment import metrics

SHARD = 50_000  # records
USERS = 100_000  # whose records are ranked, each a group
GATHERED, TAKEN = "gathered", "taken as they come"
RANKED, RANKED_GATHERED = "ranked by user, taken as they come", "ranked by user, gathered"


class Measured(Smoke):
    """The smoke task with the metrics that are known."""

    def metrics(self) -> dict:
        """Those of yes or no, and those of sums."""
        own = {"log_loss": tfps.LogLoss(), "entropy": tfps.NormalizedEntropy()}
        return {**super().metrics(), **own, "calibration": tfps.Calibration()}


class Gathered(Measured):
    """The same metrics as functions of all records, which are not known."""

    def metrics(self) -> dict:
        """The same, hidden in functions."""
        known = super().metrics()
        return {name: lambda y, p, metric=metric: metric(y, p) for name, metric in known.items()}


class Ranked(Smoke):
    """The smoke task with the metrics of how each user's records are ranked."""

    def group(self) -> tfps.Feature:
        """The user's id, which the model does not have."""
        return tfps.Feature("user", "int64")

    def metrics(self) -> dict:
        """Four of them, of the same records."""
        return {
            "gauc": tfps.GroupAUC(),
            "ndcg": tfps.NDCG(10),
            "hits": tfps.HitRate(10),
            "mrr": tfps.MeanReciprocalRank(),
        }


class GatheredRanks:
    """The same metrics of all records, which are kept until the end."""

    def __init__(self) -> None:
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, labels: dict, predictions: dict) -> None:
        """Keeps some records."""
        self._parts.append((labels["label"], predictions["predictions"], labels["user"]))

    def result(self) -> dict[str, Kept]:
        """The metrics by name."""
        gathered = [np.concatenate(parts) for parts in zip(*self._parts, strict=True)]
        return {name: Kept(metric(*gathered)) for name, metric in Ranked().metrics().items()}


WAYS = {
    TAKEN: lambda: RunningMetrics(Measured()),
    GATHERED: lambda: RunningMetrics(Gathered()),
    RANKED: lambda: RunningMetrics(Ranked()),
    RANKED_GATHERED: GatheredRanks,
}


def main() -> int:
    """Prints a JSON line for each number of records and each way; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--records", default="100000,1000000,10000000")
    parser.add_argument("--way", choices=WAYS, action="append", help="default: all")
    flags = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for records in map(int, flags.records.split(",")):
        for way in flags.way or WAYS:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=measure, args=(way, records, sender))
            process.start()
            process.join()
            if process.exitcode:
                return 1
            print(json.dumps(receiver.recv()))
    return 0


def measure(way: str, records: int, sender: multiprocessing.connection.Connection) -> None:
    """Measures some records; sends what it took and what it measured."""
    running = WAYS[way]()
    draw = np.random.default_rng(0)
    metrics.auc([0, 1], [0.1, 0.2])
    before, began = _peak(), time.process_time()
    for first in range(0, records, SHARD):
        count = min(SHARD, records - first)
        chances = draw.beta(1, 20, count).astype("f4")
        labels = (draw.random(count) < chances).astype("i8")
        users = draw.integers(0, USERS, count)
        running.add({"label": labels, "user": users}, {"predictions": chances})
    found = running.result()
    sender.send(
        {
            "way": way,
            "records": records,
            "mebibytes": round((_peak() - before) / 1024, 1),
            "cpu_seconds": round(time.process_time() - began, 2),
            "metrics": {name: each.value for name, each in found.items()},
            "notes": {name: each.note for name, each in found.items() if each.note},
        }
    )


def _peak() -> int:
    """Most KiB that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    sys.exit(main())
