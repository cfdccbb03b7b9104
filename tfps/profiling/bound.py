"""What bounds a run, and what to change about it."""

import dataclasses
import statistics
from collections import Counter
from collections.abc import Mapping

from tfps.job_dir.task_name import TaskName
from tfps.profiling.shares import Activity, TaskShares

READER, WORKER, PS, NETWORK = "reader", "worker", "ps", "network"
CHIEF, STEPS, STRAGGLER = "chief", "small steps", "straggler"
_SLOWER = 2.0  # times as slow as the others is a straggler, or a ps that stands out
_SMALL_STEP_SECONDS = 0.002  # less computing than what a message takes to go and come
_BUSY = 0.5
_NOTABLE = 0.1  # of their time, that workers wait for a ps
_STRAGGLING = 0.3  # of its time, at least, that a straggler works for a step in which others wait


@dataclasses.dataclass(frozen=True)
class Bound:
    """What bounds a run."""

    name: str
    sentence: str


def find_bound(shares: Mapping[TaskName, TaskShares], are_in_step: bool, batch_size: int) -> Bound:
    """What bounds a run, as the traces of its tasks show; one of them trains at least.

    `are_in_step` says whether workers wait for each other after each step.
    """
    workers = {task: each for task, each in shares.items() if task.job == "worker"}
    if not workers:
        workers = {task: each for task, each in shares.items() if task.job == "chief"}
    ps = {task: each for task, each in shares.items() if task.job == "ps"}
    if straggler := _straggler(workers, are_in_step):
        return straggler
    mean = statistics.fmean
    reading = mean(each.shares[Activity.READING] for each in workers.values())
    computing = mean(each.shares[Activity.COMPUTING] for each in workers.values())
    talking = mean(_talking(each) for each in workers.values())
    idle = mean(each.between_leases for each in workers.values()) if ps else 0.0
    largest = max(reading, computing, talking, idle)
    if largest == idle and (slow := _slow_ps(workers, ps)):
        return slow  # without it no closure begins or ends, either
    if largest == idle:
        return Bound(
            CHIEF,
            f"The chief bounds the run: workers wait {idle:.0%} of their time for leases. Give it "
            "cores of its own, and see in its log whether checkpoints or evaluations hold it up.",
        )
    if largest == reading:
        return Bound(
            READER,
            f"The reader bounds the run: workers wait {reading:.0%} of their time for records. "
            "Keep shards near them (--cache_dir), give them more cores, or do less work for each "
            "record while reading.",
        )
    if largest == computing or len(shares) == 1:
        return Bound(
            WORKER,
            f"The workers' computing bounds the run: {computing:.0%} of their time. Give it more "
            "workers, faster ones or GPUs, or try train.jit_compile.",
        )
    if not ps:
        return Bound(
            NETWORK,
            f"Adding up bounds the run: replicas spend {talking:.0%} of their time with each "
            f"other's gradients and rows. Raise train.batch_size, which is {batch_size:,}, or use "
            "--mode=async with ps.",
        )
    return _exchange(workers, ps, talking, batch_size)


def _straggler(workers: Mapping[TaskName, TaskShares], are_in_step: bool) -> Bound | None:
    """The worker that is far slower than the others, if there is one."""
    # How long a step takes one that has begun none, a worker that has just come, nobody knows.
    workers = {task: x for task, x in workers.items() if x.steps or x.busy >= _STRAGGLING}
    if len(workers) < 2:
        return None
    if are_in_step:  # all make as many steps: what counts is the work for one
        slowness = {
            task: each.busy * each.seconds / max(each.steps, 1) for task, each in workers.items()
        }
    else:
        slowness = {task: each.seconds_of_step for task, each in workers.items()}
    slowest = max(slowness, key=lambda task: slowness[task])
    others = statistics.median(slowness[task] for task in workers if task != slowest)
    times = slowness[slowest] / max(others, 1e-9)
    if times < _SLOWER or (are_in_step and workers[slowest].busy < _STRAGGLING):
        return None
    waits = ", and the others wait for it" if are_in_step else ""
    return Bound(
        STRAGGLER,
        f"{str(slowest).capitalize()} is a straggler: a step takes it {times:.1f} times as long as "
        f"the others{waits}. Look at what else its machine does; give workers equal machines, or "
        "use --mode.name=async.",
    )


def _exchange(
    workers: Mapping[TaskName, TaskShares],
    ps: Mapping[TaskName, TaskShares],
    talking: float,
    batch_size: int,
) -> Bound:
    """What bounds a run whose workers spend most of their time with pulls and pushes."""
    steps = sum(each.steps for each in workers.values())
    computed = sum(each.shares[Activity.COMPUTING] * each.seconds for each in workers.values())
    if computed / max(steps, 1) < _SMALL_STEP_SECONDS:
        return Bound(
            STEPS,
            f"The steps are too small: one computes for {1e3 * computed / max(steps, 1):.1f} ms, "
            f"and pulls and pushes take {talking:.0%} of the workers' time. Raise "
            f"train.batch_size, which is {batch_size:,}.",
        )
    if slow := _slow_ps(workers, ps):
        return slow
    busy = max(each.busy for each in ps.values())
    if busy >= _BUSY:
        return Bound(
            PS,
            f"The ps bound the run: workers spend {talking:.0%} of their time with pulls and "
            f"pushes, and a ps is busy {busy:.0%} of its own. Use more ps, or give them more "
            "cores.",
        )
    return Bound(
        NETWORK,
        f"The network bounds the run: workers spend {talking:.0%} of their time with pulls and "
        f"pushes, and no ps is busy more than {busy:.0%} of its own. Pull ahead "
        "(train.pipeline_depth), send less (train.wire_dtype=bfloat16), or raise train.batch_size, "
        f"which is {batch_size:,}.",
    )


def _slow_ps(
    workers: Mapping[TaskName, TaskShares], ps: Mapping[TaskName, TaskShares]
) -> Bound | None:
    """The ps that workers wait for far longer than for the others, if there is one."""
    waits: Counter[str] = Counter()
    for each in workers.values():
        waits.update(each.waits)
    by_ps = {task: waits[str(task)] / len(workers) for task in ps}
    slowest = max(by_ps, key=lambda task: by_ps[task])
    others = [wait for task, wait in by_ps.items() if task != slowest]
    if others and by_ps[slowest] > max(_SLOWER * statistics.fmean(others), _NOTABLE):
        return Bound(
            PS,
            f"The run is bounded by {slowest}: workers wait {by_ps[slowest]:.0%} of their time for "
            f"it, and {statistics.fmean(others):.0%} for another ps. Look at what else its machine "
            "does, or give it more cores.",
        )
    return None


def _talking(shares: TaskShares) -> float:
    """The part of its time that a worker spends with pulls and pushes."""
    own = shares.shares[Activity.PULLING] + shares.shares[Activity.PUSHING]
    return own + sum(shares.waits.values())
