"""Histories of runs that never were, with all that a plan reads of one."""

from tfps.job_dir.report import SaveCounts, StalenessCounts
from tfps.job_dir.task_files import TaskUsage
from tfps.monitoring.events import (
    CheckpointSaved,
    RunBegan,
    Sampled,
    TableSize,
    TasksMeasured,
    TrainingBegan,
)

BEGAN = 1_700_000_000.0
RATE = 20_000.0
TABLE_BYTES = 64 << 20
CPU = {"worker": 0.6, "ps": 0.3, "chief": 0.05}  # cores of each task
SENT = 8_000_000.0  # bytes a second of each ps


def run_of(workers=2, ps=1, seconds=120, hosts=None, cpus=2.0, mode="async", pause=None):
    """The events of a run that trains `RATE` examples a second.

    `pause` is when it evaluates, from a second to another: it trains nothing then, and computes.
    """
    tasks = ["chief 0", *(f"worker {k}" for k in range(workers)), *(f"ps {k}" for k in range(ps))]
    settings = {
        "train.batch_size": "512",
        "train.checkpoint_in_background": "True",
        "train.epochs": "3",
    }
    tables = (TableSize("item", 1000, 16, TABLE_BYTES),)
    found = [
        RunBegan(
            at=BEGAN, config="c", mode=mode, workers=workers, ps=ps, settings=settings,
            tables=tables,
        ),
        TrainingBegan(at=BEGAN + 5, checkpoint=None, epoch=0, examples=0, steps=0),
    ]  # fmt: skip
    first, last = pause or (0, 0)

    def trained(second):
        return round(RATE * (second - max(0, min(second, last) - first)))

    before = 0
    for second in range(0, seconds + 1, 10):
        at, examples = BEGAN + 5 + second, trained(second)
        found.append(
            Sampled(
                at=at, epoch=0, examples=examples, steps=examples // 512, loss=0.5,
                examples_per_second=(examples - before) / 10,
                training_seconds=examples / RATE,
            )
        )  # fmt: skip
        before = examples
        if second % 30 == 0:
            usages = {name: _usage(name, at, second, hosts, cpus) for name in tasks}
            found.append(TasksMeasured(at=at, tasks=usages))
    saved = CheckpointSaved(
        at=BEGAN + 100, name="c", examples=1, steps=1, saves=SaveCounts(),
        staleness=StalenessCounts(mean=1.5),
    )  # fmt: skip
    return [*found, saved]


def _usage(name, at, second, hosts, cpus):
    job = name.split()[0]
    sent = round(SENT * second) if job == "ps" else 0
    return TaskUsage(
        at=at,
        memory_bytes=(700 << 20) + (2 * TABLE_BYTES if job == "ps" else 0),
        cpu_seconds=7.0 + CPU[job] * second,
        sent_bytes=sent,
        received_bytes=sent // 2,
        host=(hosts or {}).get(name, "one"),
        cpus=cpus,
    )
