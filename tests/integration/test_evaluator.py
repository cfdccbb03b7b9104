"""A job with an evaluator: who evaluates, what is written, what dies."""

import csv
import json
import pathlib
import re
import shutil
from typing import Any

import numpy as np
import pytest
from cluster_process import (
    PATIENCE,
    Program,
    assert_gone,
    checkpoints,
    read_report,
    trainer_flags,
)
from datasets_on_disk import Datasets

from tests.answering_servers import AnsweringServers
from tfps.experiment import metrics

EVALUATED = 501  # records of the evaluation data


def evaluations(job_dir: pathlib.Path) -> list[dict[str, Any]]:
    """The job's evaluations, in the order of the training."""
    return [json.loads(path.read_text()) for path in sorted(job_dir.glob("evaluations/*.json"))]


def cluster_with_evaluator(flags: list[str]) -> Program:
    return Program("--workers=1", "--ps=1", "--evaluator", "--", *flags, module="cloud.local")


def assert_evaluated(job_dir: pathlib.Path, epochs: int) -> list[dict[str, Any]]:
    """Asserts what holds of every finished job with an evaluator; returns its evaluations."""
    report, found = read_report(job_dir), evaluations(job_dir)
    last = checkpoints(job_dir)[-1]
    assert (report["status"], report["epochs"]) == ("finished", epochs)
    assert [evaluation["records"] for evaluation in found] == [EVALUATED] * len(found)
    assert (found[-1]["epoch"], found[-1]["steps"]) == (epochs, last["steps"])
    assert found[-1]["checkpoint"] == pathlib.Path(report["checkpoint"]).name
    assert report["metrics"] == found[-1]["metrics"]
    assert report["evaluations"] == [
        {"epoch": x["epoch"], "steps": x["steps"], **x["metrics"]} for x in found
    ]
    assert report["export_best"].startswith(str(job_dir / "export_best"))
    return found


def assert_measured_alike(
    datasets: Datasets, job_dir: pathlib.Path, found: dict[str, Any], alone: pathlib.Path
) -> None:
    """Asserts that a chief without evaluator measures the same of the same parameters."""
    shutil.copytree(job_dir / "checkpoints", alone / "checkpoints")
    argv = trainer_flags(datasets.long, alone, "--mode.name=local", eval_data=datasets.eval)
    with Program(*argv) as program:
        assert program.finish() == 0, program.text
    assert read_report(alone)["metrics"] == pytest.approx(found["metrics"], abs=1e-6)


@pytest.mark.slow
def test_the_evaluator_evaluates_instead_of_the_workers(
    datasets: Datasets, job_dir: pathlib.Path
) -> None:
    flags = trainer_flags(datasets.uneven, job_dir, eval_data=datasets.eval)
    with cluster_with_evaluator(flags) as program:
        program.see(r"\[evaluator 0\] .*following the checkpoints of")
        tasks = program.tasks()
        assert program.finish() == 0, program.text
        assert_gone(list(tasks.values()))
    assert set(tasks) == {"chief 0", "worker 0", "ps 0", "evaluator 0"}
    last = assert_evaluated(job_dir, epochs=2)[-1]
    assert re.search(
        rf"\[evaluator 0\] .*evaluated {last['checkpoint']} after epoch 2 on 501 reco", program.text
    )
    assert program.errors == []
    assert "the workers do it" not in program.text
    own = re.compile(r"\[launcher\] |\[(chief|worker 0|ps 0|evaluator 0)\] \d\d:\d\d:\d\d [a-z]")
    assert [line for line in program.lines if not own.match(line)] == []


@pytest.mark.slow
def test_its_metrics_are_those_of_the_chief_and_its_best_predicts_them(
    datasets: Datasets, job_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    flags = trainer_flags(datasets.long, job_dir, eval_data=datasets.eval)
    with cluster_with_evaluator([*flags, "--train.best_metric=auc"]) as program:
        assert program.finish() == 0, program.text
    found = assert_evaluated(job_dir, epochs=2)

    assert_measured_alike(datasets, job_dir, found[-1], tmp_path / "alone")

    best = max(found, key=lambda evaluation: evaluation["metrics"]["auc"])
    output = tmp_path / "predictions.csv"
    argv = [f"--model={job_dir / 'export_best'}", f"--data={datasets.eval}", f"--output={output}"]
    with Program(*argv, module="trainer.predict") as program:
        assert program.finish() == 0, program.text
    with output.open() as file:
        rows = list(csv.DictReader(file))
    labels = np.array([int(row["label"]) for row in rows])
    predictions = np.array([float(row["prediction"]) for row in rows], np.float32)
    assert metrics.auc(labels, predictions) == pytest.approx(best["metrics"]["auc"], abs=1e-6)


@pytest.mark.slow
def test_a_killed_evaluator_goes_on_where_it_was(datasets: Datasets, job_dir: pathlib.Path) -> None:
    flags = trainer_flags(
        datasets.long,
        job_dir,
        "--train.batch_size=8",
        "--train.checkpoint_seconds=1",
        "--train.keep_checkpoints=1",
        eval_data=datasets.eval,
    )
    with cluster_with_evaluator(flags) as program:
        program.see(r"\[evaluator 0\] .*evaluated \S+ after epoch 0 ")
        program.see(r"\[evaluator 0\] .*evaluating", seen=len(program.lines))
        program.tasks()["evaluator 0"].kill()
        first = {x["checkpoint"]: x["seconds"] for x in evaluations(job_dir)}
        program.see(r"\[launcher\] evaluator 0 was killed by SIGKILL; restart 1 of 3")
        program.see(r"\[evaluator 0\] .*following the checkpoints", seen=len(program.lines))
        assert program.finish() == 0, program.text
    found = {x["checkpoint"]: x["seconds"] for x in assert_evaluated(job_dir, epochs=2)}
    assert len(found) > len(first) > 0
    assert {name: found[name] for name in first} == first  # none was evaluated again
    assert program.errors == []
    assert read_report(job_dir)["failures"] == []


@pytest.mark.slow
def test_its_evaluations_stop_a_model_that_cannot_improve(
    datasets: Datasets, job_dir: pathlib.Path
) -> None:
    flags = trainer_flags(
        datasets.uneven,
        job_dir,
        "--config=tests/frozen.py",
        "--train.epochs=500",
        "--train.early_stopping=2",
        eval_data=datasets.eval,
    )
    with cluster_with_evaluator(flags) as program:
        program.see(r"\[chief\] .*stopping early: loss has not become better than 0\.")
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    assert 3 <= report["epochs"] < 500
    assert "loss has not become better" in report["stopped_early"]
    found = assert_evaluated(job_dir, report["epochs"])
    assert len({evaluation["metrics"]["loss"] for evaluation in found}) == 1
    assert report["best_evaluation"]["steps"] == found[0]["steps"]


@pytest.mark.slow
def test_without_the_evaluator_the_workers_evaluate_at_the_end(
    datasets: Datasets, job_dir: pathlib.Path
) -> None:
    flags = trainer_flags(
        datasets.uneven, job_dir, "--task_wait_seconds=2", eval_data=datasets.eval
    )
    with cluster_with_evaluator(flags) as program:
        program.see(r"\[chief\] .*waiting for 1 workers and 1 ps")
        program.tasks()["evaluator 0"].suspend()  # before there is any checkpoint
        program.see(r"\[chief\] .*evaluator 0 \(\S+\) has not evaluated \S+ within 2 s: the worker")
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    assert (report["status"], report["export_best"]) == ("finished", None)
    [evaluation] = evaluations(job_dir)
    assert (evaluation["epoch"], evaluation["records"]) == (2, EVALUATED)
    assert report["metrics"] == evaluation["metrics"]


def tf_config(chief: str, cluster: dict[str, Any] | None = None) -> dict[str, str]:
    whole = cluster or {"chief": [chief], "worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
    return {"TF_CONFIG": json.dumps({"cluster": whole, "task": {"type": "evaluator", "index": 0}})}


def test_an_evaluator_of_one_process_is_refused(datasets: Datasets, job_dir: pathlib.Path) -> None:
    argv = trainer_flags(datasets.uneven, job_dir, eval_data=datasets.eval)
    with Program(*argv, environ=tf_config("", {"chief": ["h:1"]})) as program:
        assert program.finish() == 2, program.text
    [line] = program.lines
    assert line.startswith("error: this task is the evaluator of a job without workers and ps")


@pytest.mark.slow
def test_a_chief_that_goes_away(datasets: Datasets, job_dir: pathlib.Path) -> None:
    """Without a report that says it is done, the evaluator waits for it, but not for ever."""
    argv = trainer_flags(
        datasets.uneven, job_dir, "--chief_lost_seconds=2", eval_data=datasets.eval
    )
    with AnsweringServers() as chief, Program(*argv, environ=tf_config(chief.address)) as program:
        assert chief.asked.wait(PATIENCE)
        chief.close()
        assert program.finish() == 3, program.text
    [error] = program.errors
    assert error.startswith(f"error: the chief at {chief.address} has been away for 2 s ")
