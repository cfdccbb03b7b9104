"""The bound of a run follows from how its tasks spend their time."""

import pytest

from tfps.job_dir.task_name import TaskName
from tfps.profiling import bound
from tfps.profiling.bound import find_bound
from tfps.profiling.shares import Activity, TaskShares


def shares(steps=0, waits=(), **parts):
    by_activity = {each: parts.get(each.name.lower(), 0.0) for each in Activity}
    waiting = 1.0 - sum(by_activity.values())
    return TaskShares(by_activity, waiting, dict(waits), steps, seconds=2.0, operations=())


def worker(steps=100, **parts):
    return shares(steps, **parts)


IDLE_PS = shares(pulling=0.05, pushing=0.05)
COMPUTES = {"computing": 0.3}
WAITS = {"ps 0": 0.35, "ps 1": 0.35}.items()


def found(workers, ps=(IDLE_PS, IDLE_PS), are_in_step=False):
    tasks = {TaskName("worker", k): each for k, each in enumerate(workers)}
    tasks |= {TaskName("ps", k): each for k, each in enumerate(ps)}
    return find_bound(tasks, are_in_step, 512)


@pytest.mark.parametrize(
    ("workers", "more", "name", "said"),
    [
        ([worker(reading=0.6, **COMPUTES)] * 2, {}, bound.READER, "60% of their time for records"),
        ([worker(computing=0.7)] * 2, {}, bound.WORKER, "computing bounds the run: 70%"),
        (
            [worker(computing=0.2, waits={"ps 0": 0.15, "ps 1": 0.15}.items())] * 2,
            {},
            bound.CHIEF,
            "wait 50% of their",
        ),
        (  # nor does a closure begin or end without it
            [worker(computing=0.2, waits={"ps 0": 0.01, "ps 1": 0.27}.items())] * 2,
            {},
            bound.PS,
            "bounded by ps 1: workers wait 27% of their time for it, and 1% for another",
        ),
        (
            [worker(waits=WAITS, **COMPUTES)] * 2,
            {},
            bound.NETWORK,
            "no ps is busy more than 10% of its own",
        ),
        (
            [worker(waits=WAITS, **COMPUTES)] * 2,
            {"ps": [shares(pushing=0.7)]},
            bound.PS,
            "a ps is busy 70%",
        ),
        (
            [worker(waits={"ps 0": 0.05, "ps 1": 0.6}.items(), **COMPUTES)] * 2,
            {},
            bound.PS,
            "bounded by ps 1: workers wait 60% of their time for it, and 5% for another",
        ),
        (
            [worker(1000, computing=0.1, waits={"ps 0": 0.9}.items())] * 2,
            {},
            bound.STEPS,
            "one computes for 0.2 ms, and pulls and pushes take 90%",
        ),
        (
            [worker(waits=WAITS, **COMPUTES), worker(steps=30, waits=WAITS, **COMPUTES)],
            {},
            bound.STRAGGLER,
            "Worker 1 is a straggler: a step takes it 3.3 times as long as the others. Look",
        ),
        (  # one has just come, and says nothing of the other's steps
            [worker(computing=0.6, waits=WAITS), worker(0, reading=0.12)],
            {},
            bound.CHIEF,
            "wait 44% of their",
        ),
        (  # it waits for leases
            [
                worker(waits=WAITS, **COMPUTES),
                worker(30, computing=0.1, waits={"ps 0": 0.2}.items()),
            ],
            {},
            bound.NETWORK,
            "no ps is busy",
        ),
        (
            [worker(computing=0.8), worker(computing=0.1), worker(computing=0.1)],
            {"are_in_step": True},
            bound.STRAGGLER,
            "Worker 0 is a straggler: a step takes it 8.0 times as long as the others, and the",
        ),
        (
            [worker(computing=0.1, waits=WAITS), worker(computing=0.01, waits=WAITS)],
            {"are_in_step": True},
            bound.STEPS,
            "train.batch_size, which is 512",
        ),
    ],
)
def test_the_bound(workers, more, name, said):
    result = found(workers, **more)
    assert result.name == name
    assert said in result.sentence


def test_one_process_is_bound_by_its_reader_or_its_computing():
    alone = {TaskName("chief", 0): worker(reading=0.2, computing=0.3)}
    assert find_bound(alone, False, 512).name == bound.WORKER
    assert "train.jit_compile" in find_bound(alone, False, 512).sentence


def test_replicas_are_bound_by_adding_up():
    each = worker(reading=0.12, computing=0.03, pushing=0.34, pulling=0.01)
    replicas = {TaskName("chief", 0): each, TaskName("worker", 0): each}
    result = find_bound(replicas, True, 512)
    assert result.name == bound.NETWORK
    assert result.sentence.startswith("Adding up bounds the run: replicas spend 35% of their time")
