"""Jobs that never ran, with all that a page shows of one."""

from tests.job_dir.reports import full_report
from tfps.job_dir import JobDir
from tfps.job_dir import report as report_file
from tfps.job_dir.report import SaveCounts, StalenessCounts, WorkerShare
from tfps.job_dir.task_files import TaskUsage
from tfps.monitoring.events import (
    CheckpointSaved,
    Evaluated,
    RunBegan,
    RunEnded,
    Sampled,
    TableSize,
    TaskBack,
    TaskLost,
    TasksMeasured,
    TrainingBegan,
)
from tfps.monitoring.recorder import RunHistory

BEGAN = 1_700_000_000.0


def sampled(minute, examples, loss, **judged):
    shares = tuple(WorkerShare(minute, examples // 2, 50.0 * minute, 5.0 * minute) for _ in "ab")
    return Sampled(
        at=BEGAN + 60 * minute,
        epoch=examples // 1000,
        examples=examples,
        steps=examples // 10,
        loss=loss,
        examples_per_second=100.0 + minute,
        workers=shares,
        judged=judged,
    )


def evaluated(minute, examples, **metrics):
    """A checkpoint and its evaluation."""
    at, steps = BEGAN + 60 * minute, examples // 10
    saves, staleness = SaveCounts(saved=minute, bytes=9), StalenessCounts(0.5, [1, 1])
    name = f"checkpoint-{steps}"
    return [
        CheckpointSaved(
            at=at, name=name, examples=examples, steps=steps, saves=saves, staleness=staleness
        ),
        Evaluated(at=at + 1, epoch=1, steps=steps, metrics=metrics, has_ended_epoch=True),
    ]


def events(config="criteo", **settings):
    """Those of a run that lost a ps."""
    texts = {"train.batch_size": "64", "train.epochs": "2", **settings}
    usages = {name: TaskUsage(BEGAN, 1 << 30, 5.0) for name in ("chief 0", "ps 0", "worker 1")}
    return [
        RunBegan(
            at=BEGAN,
            config=config,
            mode="async",
            workers=2,
            ps=3,
            settings=texts,
            overrides=("train.epochs=2",),
            tables=(TableSize("user", 1000, 16, 128_000), TableSize("item", 5000, 16, 640_000)),
        ),
        TrainingBegan(at=BEGAN + 5, checkpoint=None, epoch=0, examples=0, steps=0),
        sampled(1, 500, 0.7),
        sampled(2, 1000, 0.6),
        TasksMeasured(at=BEGAN + 121, tasks=usages),
        *evaluated(3, 1000, loss=0.55, auc=0.8),
        sampled(4, 1900, 0.4),
        TaskLost(at=BEGAN + 250, task="ps 0", what="its port refused connections"),
        TaskBack(at=BEGAN + 260, task="ps 0", seconds=10.0),
        TrainingBegan(at=BEGAN + 270, checkpoint="c", epoch=1, examples=1000, steps=100),
        sampled(5, 1500, 0.5),
        *evaluated(6, 2000, loss=0.45, auc=0.85),
        RunEnded(at=BEGAN + 400, status="finished"),
    ]


def write(job_dir, happened, **fields):
    """Makes a job's directory of what happened in it; returns its path."""
    job_dir.mkdir()
    report_file.write(JobDir(job_dir), full_report(status="finished", error=None, **fields))
    history = RunHistory(JobDir(job_dir), BEGAN)
    for event in happened:
        history.tell(event)
    history.flush()
    return str(job_dir)
