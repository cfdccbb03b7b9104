"""A run that chooses its size, in steps that wait: each worker brings as much, a ps nothing."""

import json
import os
import pathlib

import numpy as np
import pytest
from cluster_process import Program, assert_gone, read_report
from counting_job import flags, trained

from tests import counting_task
from tests.loaded import client, started
from tfps.job_dir import JobDir
from tfps.monitoring import recorder
from tfps.monitoring.events import RunBegan

SIZES = (6000, 6000)
STEP_SECONDS = 0.2
CHOOSE = ("--autoscale=1:2,2", "--autoscale_seconds=5")


@pytest.mark.slow
def test_a_run_has_more_tasks_as_long_as_they_bring_something(
    tmp_path: pathlib.Path,
) -> None:
    task = counting_task.CountingTask(records=sum(SIZES), step_seconds=STEP_SECONDS)
    data = counting_task.write(tmp_path / "data", task, SIZES)
    job_dir = tmp_path / "job"
    own = flags(data, job_dir, task, "--train.batch_size=20", "--train.epochs=1", *CHOOSE)
    with Program("--workers=1", "--ps=1", "--", *own, module="cloud.local") as program:
        program.see(r"\d+ examples/s with 1 worker and 1 ps: trying 2 workers and 1 ps")
        program.see(r"beginning again with 2 workers and 1 ps, of 1 worker and 1 ps")
        program.see(r"\d+ examples/s with 2 workers and 1 ps: trying 2 workers and 2 ps")
        program.see(r"\d+ examples/s with 2 workers and 2 ps: trying 2 workers and 1 ps")
        assert program.finish() == 0, program.text
    assert_gone(list(started.processes_with(f"--job_dir={job_dir}")))
    report = read_report(job_dir)
    assert report["cluster"] == {"workers": 2, "ps": 1}
    counts = {name: report["examples"][name] for name in ("trained", "skipped", "repeated")}
    assert counts == {"trained": task.records, "skipped": 0, "repeated": 0}
    np.testing.assert_array_equal(trained(data, task, job_dir, 1), 1)
    began = [each for each in recorder.read(JobDir(job_dir)) if isinstance(each, RunBegan)]
    assert [(each.workers, each.ps) for each in began] == [(1, 1), (2, 1), (2, 2), (2, 1)]


CLUSTER = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3"]}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--autoscale=2:4"],
            "--autoscale=2:4: what has started this run cannot change its size",
        ),
        (["--autoscale=4:2"], "--autoscale=4:2: write MIN:MAX workers, such as 2:8"),
        (["--autoscale=1:4", "--min_workers=2"], "a run with --min_workers=2 cannot have fewer"),
    ],
)
def test_a_run_that_cannot_choose_is_refused(flags: list[str], message: str) -> None:
    own = {"cluster": CLUSTER | {"worker": ["127.0.0.1:2", "127.0.0.1:4"]}}
    config = json.dumps(own | {"task": {"type": "chief", "index": 0}})
    assert message in refusal(*flags, environ={**os.environ, "TF_CONFIG": config})


def test_a_job_of_one_process_has_no_number_to_choose() -> None:
    said = refusal("--autoscale=2:4", environ=dict(os.environ))
    assert "--autoscale=2:4, but this job is one process without workers; leave it out" in said


def refusal(*flags: str, environ: dict[str, str]) -> str:
    given = ("--config=configs/smoke.py", "--job_dir=nowhere", *flags)
    done = client.run("trainer.task", *given, environ=environ)
    assert done.returncode == 2
    return done.stderr
