"""`make gpu`: what it plans, refuses, continues with; all but the device's own part, on the CPU."""

import os
import pathlib
import subprocess
import sys

import pytest

from benchmarks.gpu import cases, rounds, systems
from benchmarks.gpu.cases import CASES, FIT, TORCH, Case, Setup, planned
from benchmarks.gpu.data import Data
from benchmarks.results import Results
from tests.gpu import nvidia_smi
from tests.make_commands import would_run
from tests.project import ROOT


def test_one_gpu_is_shared_and_two_are_owned_shared_or_split():
    of_one = {setup.name for case, setup in planned(1, []) if case == Case()}
    of_two = {setup.name for case, setup in planned(2, []) if case == Case()}
    assert {"async 2 workers on 1 GPU", "allreduce 2 workers on 1 GPU", FIT, TORCH} <= of_one
    assert {name for name in of_one if "2 GPUs" in name} == set()
    assert of_two - of_one == {
        *("async 2 workers on 2 GPUs", "async 1 worker on 2 GPUs", "sync 2 workers on 2 GPUs"),
        *("allreduce 2 workers on 2 GPUs", "allreduce 2 workers on 2 GPUs by NCCL"),
        "async 2 workers on 2 GPUs and one killed",
    }
    assert "async 2 workers on 1 GPU and one killed" in of_one


def test_what_cannot_be_trained_is_not_planned_and_has_a_reason():
    for case in CASES:
        there = {setup for planned_case, setup in planned(2, []) if planned_case == case}
        for setup in cases.SETUPS:
            assert (setup in there) == (not cases.refusal(case, setup))
    assert "Criteo's model alone" in cases.refusal(Case("census"), Setup(cases.TORCH))


def test_a_rehearsal_is_without_nccl():
    left_out = {*planned(2, [])} - {*planned(2, [], has_nccl=False)}
    assert {setup for _, setup in left_out} == {Setup("allreduce", 2, 2, has_nccl=True)}
    command = systems.tfps_command(Case(), Setup("allreduce", 2, 2, has_nccl=True), [])
    assert "--collectives=nccl" in command


def test_what_is_chosen_brings_what_it_is_held_against():
    chosen = list(planned(2, ["criteo mixed_bfloat16: sync 1"]))
    assert chosen == [
        (Case("criteo", "mixed_bfloat16"), Setup("sync")),
        (Case("criteo"), Setup("sync", 1, 0)),
    ]
    assert list(planned(2, ["none such"])) == []


def test_names_are_different_and_hold_no_comma():
    names = [f"{case.name}: {setup.name}" for case, setup in planned(2, [])]
    assert len(set(names)) == len(names)
    assert not any("," in name for name in names)  # they are separated by one in --only


def test_what_is_there_is_not_trained_again(tmp_path):
    results = Results(tmp_path / "results.jsonl", Case)
    work = list(planned(1, ["criteo float32: local", "killed"]))
    first = rounds.turns_left(results, work, 2)
    # The CPU and the kill come once.
    assert [(run, setup.name) for run, _, setup in first] == [
        *((1, "local on 1 GPU"), (1, "async 2 workers on 1 GPU and one killed")),
        *((1, "local on the CPU"), (2, "local on 1 GPU")),
    ]
    assert rounds.minutes(results, 4) == 5
    results.add(*work[0][:1], work[0][1].name, 1, {"took_seconds": 600.0})
    assert rounds.turns_left(results, work, 2) == first[1:]
    assert rounds.minutes(results, 3) == 30


@pytest.mark.parametrize(
    ("setup", "visible", "launched"),
    [
        (Setup("async", 2, 2), "3,5", ["--workers=2", "--ps=1", "--gpus_per_worker=1", "--"]),
        (Setup("async", 2, 1), "3", ["--workers=2", "--ps=1", "--"]),
        (Setup("async", 1, 2), "3,5", ["--workers=1", "--ps=1", "--"]),
        (Setup("allreduce", 2, 2), "3,5", ["--workers=1", "--ps=0", "--gpus_per_worker=1", "--"]),
        (Setup("sync", 2, 0), "-1", ["--workers=2", "--ps=1", "--"]),
    ],
)
def test_a_setup_has_its_gpus(setup, visible, launched):
    assert systems.environ(setup, ["3", "5"])["CUDA_VISIBLE_DEVICES"] == visible
    command = systems.tfps_command(Case(jit_compile=True), setup, ["--x"])
    assert command[2 : 4 + len(launched)] == ["cloud.local", *launched, "--x"]
    assert {f"--mode.name={setup.mode}", "--train.jit_compile=true"} <= set(command)


def run(*flags, module="benchmarks.gpu", **environ):
    return subprocess.run(
        [sys.executable, "-m", module, *flags],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", ["benchmarks.gpu", "benchmarks.gpu.start"])
def test_a_machine_without_a_gpu_is_refused_in_one_sentence(module, tmp_path):
    kept = [f"--output={tmp_path}/r.jsonl", f"--report={tmp_path}/r.md"]
    done = run(*(kept if module == "benchmarks.gpu" else []), module=module, PATH="/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("error: this machine has no nvidia-smi")
    assert done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """PATH with the stand-in."""
    return nvidia_smi.install(tmp_path_factory.mktemp("bin"))


@pytest.mark.parametrize(
    ("flags", "variables", "message"),
    [
        (["--runs=0"], {}, "--runs=0 --batch=4096: both must be at least 1"),
        (["--seconds=1"], {}, "--seconds=1.0 must be at least 3.0"),
        (["--output=/nowhere/r"], {}, "--output=/nowhere/r: there is no directory for it"),
        (["--only=none such"], {}, "--only=none such: no case and setup has that in its name"),
        (["--torch_python=/no/python"], {}, "--torch_python=/no/python: no such program"),
        ([], {"CUDA_VISIBLE_DEVICES": "7"}, "CUDA_VISIBLE_DEVICES=7 names other GPUs than"),
        ([], {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES= names other GPUs than"),
        ([], {nvidia_smi.MARK: "0"}, "nvidia-smi lists no GPU"),
    ],
)
def test_what_could_only_fail_later_is_refused(path, tmp_path, flags, variables, message):
    kept = [f"--output={tmp_path}/r.jsonl", f"--report={tmp_path}/r.md"]
    done = run(*kept, *flags, **{"PATH": path, nvidia_smi.MARK: "2"} | variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1


def test_the_verb_passes_its_arguments_on():
    said = would_run("gpu", "PYTHON=python3.12", "GPU_ARGS=--runs=1")
    assert said == "python3.12 -m benchmarks.gpu.start --runs=1\n"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_rehearsal_on_the_cpu_does_everything_but_the_devices_part(path, tmp_path):
    """Workers own a GPU each by the stand-in; one is killed; the AUCs are the CPU's own."""
    chosen = "criteo float32: async 2 workers on 2 GPUs,census float32: allreduce 2 workers on 2"
    flags = [
        *("--rehearse", "--runs=1", "--seconds=3", "--warm_seconds=1", "--batch=256"),
        *(f"--output={tmp_path}/r.jsonl", f"--report={tmp_path}/r.md", f"--data={tmp_path}/data"),
        f"--only={chosen},census float32: {FIT}",
    ]
    done = run(*flags, **{"PATH": path, nvidia_smi.MARK: "2"})
    text = pathlib.Path(tmp_path, "r.md").read_text()
    assert "0 failed, 0 not known" in text, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a rehearsal on the CPU: nothing here is of a GPU" in text
    for what in ("only tasks that train use a GPU", "a killed worker's memory is freed"):
        assert f": {what}" in text
    assert "heaviest of the worker" in text
    again = run(*flags, **{"PATH": path, nvidia_smi.MARK: "2"})
    assert "0 things to train" in again.stdout
    assert again.returncode == 0


def test_a_job_is_trained_to_the_end_with_the_configs_own_batches():
    kept = Data(pathlib.Path("t"), pathlib.Path("l"), pathlib.Path("e"))
    command = systems.trained_to_the_end(
        Case("census"), Setup("local"), kept.learnt, kept.evaluated, pathlib.Path("j")
    )
    assert {"--data.train=l", "--data.eval=e", "--job_dir=j"} <= set(command)
    assert not any("batch_size" in each for each in command)
