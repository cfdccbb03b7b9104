"""What must hold is held against what was seen, and says both."""

import pytest

from benchmarks.gpu import checks, watch
from benchmarks.gpu.cases import FIT, Case, Setup
from benchmarks.gpu.report import report
from benchmarks.results import Results

OWN, SHARED = Setup("async", 2, 2), Setup("async", 2, 1)
SPLIT, REPLICAS = Setup("async", 1, 2), Setup("allreduce", 2, 2)
GOOD = {
    "samples": 8,
    "utilization": {"0": 40.0, "1": 30.0},
    "memory_peak": {"0": 600, "1": 700},
    "memory_total": {"0": 80000, "1": 80000},
    "listed": {"worker-0": {"0": 500}, "worker-1": {"1": 510}},
    "others": 0,
}
KILLED = {
    "was_listed": True,
    "freed_seconds": 0.4,
    "back_seconds": 9.0,
    "memory_before": 1100,
    "memory_after": 580,
}


def seen(**listed):
    return GOOD | {"listed": {name.replace("_", "-"): mine for name, mine in listed.items()}}


@pytest.mark.parametrize(
    ("setup", "gpu", "passed"),
    [
        (OWN, GOOD, True),
        (OWN, seen(worker_0={"0": 5}), False),
        (OWN, seen(worker_0={"0": 5}, worker_1={"1": 5}, ps_0={"0": 300}), False),
        (OWN, seen(worker_0={"0": 5}, worker_1={"1": 5}, chief_0={"0": 300}), False),
        (REPLICAS, seen(chief_0={"0": 5}, worker_0={"1": 5}), True),
        (Setup("local"), seen(chief_0={"0": 5}), True),
        (Setup("torch"), seen(worker_0={"0": 5}), True),
        (OWN, seen(), None),
    ],
)
def test_only_those_that_train_may_use_a_gpu(setup, gpu, passed):
    assert checks.only_those_that_train(setup, "here", gpu).passed is passed


def test_a_ps_with_a_cuda_context_is_named():
    gpu = seen(worker_0={"0": 5}, worker_1={"1": 5}, ps_0={"0": 300})
    assert checks.only_those_that_train(OWN, "here", gpu).sentence == (
        "FAILED: only tasks that train use a GPU (here): expected worker-0, worker-1 and no other "
        "task in nvidia-smi's list of processes; saw ps-0, worker-0, worker-1 there."
    )


def test_a_container_that_hides_processes_is_not_taken_for_a_failure():
    found = checks.only_those_that_train(OWN, "here", {**seen(), "others": 3})
    assert found.sentence.startswith("not known: ")
    assert "it lists 3 processes under ids that no process has here" in found.seen


@pytest.mark.parametrize(
    ("setup", "listed", "passed"),
    [
        (OWN, {"worker_0": {"0": 5}, "worker_1": {"1": 5}}, True),
        (OWN, {"worker_0": {"0": 5}, "worker_1": {"0": 5}}, False),
        (OWN, {"worker_0": {"0": 5, "1": 5}, "worker_1": {"0": 5, "1": 5}}, False),
        (SHARED, {"worker_0": {"0": 5}, "worker_1": {"0": 5}}, True),
        (SHARED, {"worker_0": {"0": 5}, "worker_1": {"1": 5}}, False),
        (SPLIT, {"worker_0": {"0": 5, "1": 5}}, True),
        (SPLIT, {"worker_0": {"0": 5}}, False),
        (SPLIT, {}, None),
    ],
)
def test_tasks_are_on_the_gpus_that_they_were_given(setup, listed, passed):
    assert checks.on_their_gpus(setup, "here", seen(**listed)).passed is passed


@pytest.mark.parametrize(
    ("shares", "passed"),
    [
        ({"0": 12.5, "1": 0.5}, True),
        ({"0": 12.5, "1": 0.5, "2": 0}, True),
        ({"0": 12.5, "1": 0}, False),
        ({"0": 12.5, "1": None}, None),
        ({}, None),
    ],
)
def test_a_gpu_that_has_a_context_and_no_kernels_is_found(shares, passed):
    assert checks.gpus_compute("here", GOOD | {"utilization": shares}).passed is passed


def test_memory_that_is_taken_whole_is_found():
    assert checks.memory_grows("here", GOOD).passed is True
    found = checks.memory_grows("here", seen(worker_0={"0": 78000}))
    assert (found.passed, found.seen) == (False, "97.5% by worker-0 on GPU 0")
    # Where nvidia-smi does not tell what each holds, all of a GPU counts.
    untold = {**seen(worker_0={"0": None}), "memory_peak": {"0": 78000, "1": 3}}
    assert checks.memory_grows("here", untold).passed is False


@pytest.mark.parametrize(
    ("differently", "passed", "said"),
    [
        ({}, True, "it off after 0.4 s, 520 of 510 MiB free, the next one after 9 s"),
        ({"freed_seconds": None}, False, "it still there at the end"),
        ({"freed_seconds": 45.0}, False, "it off after 45 s"),
        ({"memory_after": 1000}, False, "100 of 510 MiB free"),
        ({"back_seconds": None}, False, "the next one never there"),
        ({"was_listed": False}, None, "it never there"),
    ],
)
def test_a_killed_worker_leaves_nothing_behind(differently, passed, said):
    found = checks.memory_is_freed("here", KILLED | differently, GOOD)
    assert found.passed is passed
    assert said in found.seen


@pytest.mark.parametrize(
    ("precision", "on_gpu", "on_cpu", "passed"),
    [
        ("float32", 0.8049, 0.8, True),
        ("float32", 0.7949, 0.8, False),
        ("float32", 0.8051, 0.8, False),
        ("mixed_float16", 0.8051, 0.8, True),
        ("mixed_bfloat16", 0.7899, 0.8, False),
        ("float32", 0.8, None, None),
    ],
)
def test_quality_is_the_cpus_within_a_tolerance(precision, on_gpu, on_cpu, passed):
    assert checks.quality_holds("here", precision, on_gpu, on_cpu).passed is passed


NCCL_LOG = (
    "host:77:201 [0] NCCL INFO ncclCommInitRankConfig comm 0x55d0 rank {} nranks 2 cudaDev 0 "
    "nvmlDev 0 busId 1000 commId 0x9f - Init {}\n"
)


@pytest.mark.parametrize(
    ("logs", "passed"),
    [
        ([(0, "COMPLETE"), (1, "COMPLETE")], True),
        ([(0, "START"), (1, "COMPLETE")], False),
        ([], False),
    ],
)
def test_replicas_that_add_up_by_nccl_are_its_ranks(tmp_path, logs, passed):
    for rank, state in logs:
        (tmp_path / f"nccl-{100 + rank}").write_text(NCCL_LOG.format(rank, state))
    found = checks.nccl_is_used(REPLICAS, "here", watch.nccl_ranks(tmp_path))
    assert found.passed is passed


def test_a_step_that_cannot_be_traced_says_why():
    told = {"is_told": False, "lines": ["error: no task answers"]}
    found = checks.step_is_told("here", told)
    assert (found.passed, found.seen) == (False, "error: no task answers")


@pytest.fixture
def results(tmp_path):
    """Two runs of two setups on one case, the quality of one on the CPU, and a killed worker."""
    found = Results(tmp_path / "results.jsonl", Case)
    found.begin({"machine": {"GPUs": "NVIDIA L4, 23,034 MiB"}, "batch": 4096, "rehearse": False})
    about = {"took_seconds": 60.0, "commit": "0123456789"}
    alone = seen(chief_0={"0": 400})
    profile = {"is_told": True, "lines": ["task      computing", "worker 0        40%"]}
    for run, (mine, theirs) in enumerate(((300.0, 200.0), (320.0, 160.0)), 1):
        figures = {"examples_per_second": mine, "gpu": GOOD, "profile": profile, **about}
        found.add(Case(), OWN.name, run, figures | ({"auc": 0.8123} if run == 1 else {}))
        figures = {"examples_per_second": theirs, "gpu": alone, **about}
        found.add(Case(), FIT, run, figures)
    found.add(Case(), OWN.on_cpu.name, 1, {"auc": 0.8111, **about})
    killed = Setup("async", 2, 2, kills=True)
    figures = {"examples_per_second": 250.0, "gpu": GOOD, "killed": KILLED, **about}
    found.add(Case(), killed.name, 1, figures)
    return found


def test_every_run_is_checked(results):
    found = checks.all_checks(results)
    assert {check.passed for check in found} == {True}
    by_kind = [check.what for check in found]
    assert by_kind.count("only tasks that train use a GPU") == 5
    assert by_kind.count("tasks are on the GPUs that they were given") == 3
    assert by_kind.count("a GPU learns what the CPU does") == 1
    assert by_kind.count("a killed worker's memory is freed, and the next one gets some") == 1


def test_the_report_has_ratios_first_and_what_was_seen(results):
    text = report(results)
    (mine,) = [
        line.split(" | ") for line in text.splitlines() if line.startswith(f"| {OWN.name} |")
    ]
    assert mine[1:4] == ["1.75 (1.50–2.00)", "", "310 (300–320)"]  # noqa: RUF001
    assert mine[4] == "GPU 0: 40 (40–40), GPU 1: 30 (30–30)"  # noqa: RUF001
    assert mine[5] == "worker-0 500, worker-1 510"
    assert mine[6:8] == ["0.8123 (0.8123–0.8123)", "0.8111 (0.8111–0.8111)"]  # noqa: RUF001
    assert "worker 0        40%" in text
    assert "- GPUs: NVIDIA L4, 23,034 MiB" in text
    assert "rehearsal" not in text
