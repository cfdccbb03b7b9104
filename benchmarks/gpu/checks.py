"""What must hold of what was seen, each as a sentence: what was expected, what was seen."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu.cases import KILLED, PEERS, SETUPS, Case, Setup
from benchmarks.results import Results

# Between AUCs: seeds alone make 0.002 of difference with several workers, mixed precision more.
TOLERANCES = {"float32": 0.005, "mixed_float16": 0.01, "mixed_bfloat16": 0.01}
# Of a GPU's memory: TensorFlow takes nearly all of it at once unless told to let it grow, and the
# models here need less than that by far.
GROWN_SHARE = 0.5
FREED_SECONDS = 30.0
FREED_SHARE = 0.5  # of what the killed worker held, at least, that others may use again

Figures = Mapping[str, Any]
_BY_NAME = {setup.name: setup for setup in (*SETUPS, *KILLED)}


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that must hold.

    Attributes:
        what: It.
        where: Case and setup.
        passed: Whether it does; None where it cannot be told from what was seen.
        expected: What was expected.
        seen: What was seen.
    """

    what: str
    where: str
    passed: bool | None
    expected: str
    seen: str

    @property
    def sentence(self) -> str:
        """All of it."""
        verdict = {True: "passed", False: "FAILED", None: "not known"}[self.passed]
        return f"{verdict}: {self.what} ({self.where}): expected {self.expected}; saw {self.seen}."


def all_checks(results: Results[Case]) -> list[Check]:
    """Every check of everything that was measured."""
    found = []
    for (case, name), runs in results.runs.items():
        setup = _BY_NAME.get(name)
        if setup is None:  # on the CPU
            continue
        for run, figures in runs.items():
            where = f"{case.name}: {name}, run {run}"
            found += list(_of_a_run(setup, where, figures))
        if setup.mode not in PEERS and not setup.kills:
            found += _of_quality(results, case, setup)
    return found


def _of_a_run(setup: Setup, where: str, figures: Figures) -> Iterator[Check]:
    gpu = figures["gpu"]
    yield only_those_that_train(setup, where, gpu)
    if setup.gpus > 1 or setup.workers > 1:
        yield on_their_gpus(setup, where, gpu)
    yield gpus_compute(where, gpu)
    if setup.mode not in PEERS:
        yield memory_grows(where, gpu)
    if "profile" in figures:
        yield step_is_told(where, figures["profile"])
    if "nccl_ranks" in figures:
        yield nccl_is_used(setup, where, figures["nccl_ranks"])
    if "killed" in figures:
        yield memory_is_freed(where, figures["killed"], gpu)


def only_those_that_train(setup: Setup, where: str, gpu: Figures) -> Check:
    """ps, and a chief that only coordinates, have no CUDA context; all that train have one."""
    wanted, listed = set(setup.computing), set(gpu["listed"])
    expected = f"{_names(wanted)} and no other task in nvidia-smi's list of processes"
    seen = f"{_names(listed)} there"
    what = "only tasks that train use a GPU"
    if not listed:
        return Check(what, where, None, expected, f"{seen}; {_why_none(gpu)}")
    return Check(what, where, listed == wanted, expected, seen)


def on_their_gpus(setup: Setup, where: str, gpu: Figures) -> Check:
    """Workers own a GPU each, share one, or have several, as the setup says."""
    listed = {task: sorted(mine) for task, mine in gpu["listed"].items()}
    used = sorted({index for mine in listed.values() for index in mine})
    of_each = setup.gpus if setup.workers == 1 else 1
    expected = f"{setup.gpus} GPUs in use, {of_each} by each that trains"
    if setup.gpus == 1:
        expected = "all that train on the same GPU"
    seen = "; ".join(f"{task} on {', '.join(mine)}" for task, mine in sorted(listed.items()))
    what = "tasks are on the GPUs that they were given"
    if not listed:
        return Check(what, where, None, expected, _why_none(gpu))
    holds = len(used) == setup.gpus and all(len(mine) == of_each for mine in listed.values())
    return Check(what, where, holds, expected, seen)


def gpus_compute(where: str, gpu: Figures) -> Check:
    """Kernels run on every GPU in use: a context alone holds memory and computes nothing."""
    shares = {index: gpu["utilization"].get(index) for index in used_gpus(gpu)}
    what, expected = "GPUs compute", "kernels on each GPU in use for more than 0 % of the window"
    if not shares or None in shares.values():
        return Check(what, where, None, expected, "nvidia-smi does not tell")
    seen = ", ".join(f"{share:g} % on GPU {index}" for index, share in sorted(shares.items()))
    return Check(what, where, all(shares.values()), expected, seen)


def memory_grows(where: str, gpu: Figures) -> Check:
    """No task takes a GPU whole at once."""
    total, listed = gpu["memory_total"], gpu["listed"]
    held = {
        f"{task} on GPU {index}": memory / total[index]
        for task, mine in sorted(listed.items())
        for index, memory in mine.items()
        if memory is not None and index in total
    }
    if not held:  # nvidia-smi does not tell what each holds
        held = {f"all on GPU {index}": gpu["memory_peak"][index] / total[index] for index in total}
    seen = ", ".join(f"{share:.1%} by {whom}" for whom, share in held.items())
    expected = f"less than {GROWN_SHARE:.0%} of a GPU's memory held at any time"
    holds = all(share < GROWN_SHARE for share in held.values())
    return Check("memory grows on demand", where, holds, expected, seen)


def memory_is_freed(where: str, killed: Figures, gpu: Figures) -> Check:
    """A killed worker leaves no context and no memory behind, and its successor gets some."""
    what = "a killed worker's memory is freed, and the next one gets some"
    expected = (
        f"it off nvidia-smi's list within {FREED_SECONDS:g} s, at least {FREED_SHARE:.0%} of what "
        "it held free by then, and the worker that is started in its place on the list"
    )
    if not killed["was_listed"]:
        return Check(what, where, None, expected, f"it never there; {_why_none(gpu)}")
    freed, back = killed["freed_seconds"], killed["back_seconds"]
    if freed is None:
        return Check(what, where, False, expected, "it still there at the end")
    held = sum(memory or 0 for memory in gpu["listed"].get("worker-1", {}).values())
    given_back = killed["memory_before"] - killed["memory_after"]
    came = "the next one never there" if back is None else f"the next one after {back:g} s"
    seen = f"it off after {freed:g} s, {given_back:,} of {held:,} MiB free, {came}"
    holds = freed <= FREED_SECONDS and given_back >= FREED_SHARE * held and back is not None
    return Check(what, where, holds, expected, seen)


def nccl_is_used(setup: Setup, where: str, ranks: Sequence[str]) -> Check:
    """Every replica is a rank of one communicator, as NCCL's own log says."""
    wanted = [f"{rank} of {setup.workers}" for rank in range(setup.workers)]
    expected = f"ranks {', '.join(wanted)} set up in NCCL's log"
    seen = f"ranks {', '.join(ranks)}" if ranks else "none"
    holds = list(ranks) == wanted
    return Check("replicas add up by NCCL", where, holds, expected, seen)


def step_is_told(where: str, profile: Figures) -> Check:
    """Where a step's time goes can be traced while GPUs compute."""
    seen = "a table" if profile["is_told"] else " ".join(profile["lines"]) or "nothing"
    expected = "trainer.profile to say where a step's time goes"
    return Check("a step can be traced", where, profile["is_told"], expected, seen)


def _of_quality(results: Results[Case], case: Case, setup: Setup) -> Iterator[Check]:
    mine = results.runs[case, setup.name].get(1, {}).get("auc")
    if mine is not None:
        theirs = results.runs.get((case.on_cpu, setup.on_cpu.name), {}).get(1, {}).get("auc")
        yield quality_holds(f"{case.name}: {setup.name}", case.precision, mine, theirs)


def quality_holds(where: str, precision: str, on_gpu: float, on_cpu: float | None) -> Check:
    """The AUC is the CPU's in float32, within a tolerance.

    Args:
        where: Case and setup.
        precision: Of the case.
        on_gpu: AUC on the evaluation records.
        on_cpu: The same of the same mode and number of workers on the CPU; None if it is missing.
    """
    tolerance = TOLERANCES[precision]
    what = "a GPU learns what the CPU does"
    expected = f"an AUC within {tolerance:g} of the CPU's"
    if on_cpu is None:
        return Check(what, where, None, expected, f"{on_gpu:.4f}, and none of the CPU yet")
    seen = f"{on_gpu:.4f}, the CPU {on_cpu:.4f}: {on_gpu - on_cpu:+.4f}"
    return Check(what, where, abs(on_gpu - on_cpu) <= tolerance, expected, seen)


def used_gpus(gpu: Figures) -> set[str]:
    """Indices of the GPUs on which a task has a CUDA context."""
    return {index for mine in gpu["listed"].values() for index in mine}


def _why_none(gpu: Figures) -> str:
    if gpu["others"]:
        return (
            f"it lists {gpu['others']} processes under ids that no process has here, as in a "
            "container without the machine's process ids"
        )
    return "it lists no process at all, as in a container without the machine's process ids"


def _names(tasks: set[str]) -> str:
    return ", ".join(sorted(tasks)) or "none"
