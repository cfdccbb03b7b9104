"""The history of a job: what its chiefs wrote is what is read."""

import pytest

from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.job_dir.report import SaveCounts, WorkerShare
from tfps.job_dir.task_files import TaskUsage
from tfps.monitoring import recorder
from tfps.monitoring.events import (
    CheckpointSaved,
    EpochTrained,
    Evaluated,
    LeaseTimes,
    RunBegan,
    RunEnded,
    Sampled,
    TaskBack,
    TaskLost,
    TasksMeasured,
    TrainingBegan,
)
from tfps.monitoring.recorder import RunHistory

ALL = [
    RunBegan(at=1.0, config="smoke", mode="async", workers=2, ps=1, overrides=("a=1",)),
    TrainingBegan(at=2.0, checkpoint=None, epoch=0, examples=0, steps=0),
    Sampled(
        at=3.5,
        epoch=0,
        examples=100,
        steps=10,
        loss=0.5,
        examples_per_second=9.0,
        repeated=1,
        bad=2,
        workers=(WorkerShare(1, 100, 1.0, 0.5),),
        leases=LeaseTimes().with_another(1.0),
    ),
    TasksMeasured(at=3.7, tasks={"ps 0": TaskUsage(at=3.6, memory_bytes=10, cpu_seconds=0.5)}),
    TaskLost(at=4.0, task="ps 0", what="gone"),
    TaskBack(at=5.0, task="ps 0", seconds=1.0),
    CheckpointSaved(at=6.0, name="c", examples=100, steps=10, saves=SaveCounts(saved=1, bytes=9)),
    EpochTrained(at=7.0, epoch=0, steps=10, loss=0.5, learning_rate=None, steps_per_second=2.0),
    Evaluated(at=8.0, epoch=1, steps=10, metrics={"loss": 0.4}, has_ended_epoch=True),
    RunEnded(at=9.0, status="failed", error="a reason"),
]


def write(job_dir, events, began=1.0):
    kept = RunHistory(JobDir(job_dir), began)
    for event in events:
        kept.tell(event)
        kept.flush()


def files_of(job_dir):
    return sorted((job_dir / "history").iterdir())


def test_a_job_without_history_has_none(tmp_path):
    assert recorder.read(JobDir(tmp_path)) == []


def test_chiefs_add_to_it_one_after_the_other(tmp_path):
    write(tmp_path, ALL[5:], began=1e9)
    write(tmp_path, ALL[:5], began=2.0)
    assert recorder.read(JobDir(tmp_path)) == ALL


def test_a_line_that_is_being_written_is_left_out_and_a_damaged_one_told(tmp_path):
    write(tmp_path, ALL[:2])
    [path] = files_of(tmp_path)
    with path.open("a") as file:
        file.write('{"kind": "lost", "at": 1')
    assert recorder.read(JobDir(tmp_path)) == ALL[:2]
    path.write_text('{"kind": "from a later version"}\n{"kind": "lost", "at": 1}\n')
    with pytest.raises(UserError, match=r"\.jsonl, line 2, is damaged .*`task`"):
        recorder.read(JobDir(tmp_path))
