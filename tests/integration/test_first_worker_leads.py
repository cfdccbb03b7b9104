"""Jobs whose TF_CONFIG has no chief, as Azure ML's and Spark's launchers and TensorFlow have it."""

import contextlib
import json
import pathlib

import pytest
from cluster_process import Program, assert_gone, read_report, trainer_flags
from datasets_on_disk import UNEVEN, Datasets

from cloud.local.command import Ports
from tests.loaded import started

EPOCHS = 2


@contextlib.contextmanager
def tasks_of(jobs, flags):
    """Starts tasks by job, a number of each, with a port free for a worker next to the first."""
    with Ports(sum(jobs.values()) + 1) as ports, contextlib.ExitStack() as stack:
        *own, beside = (f"127.0.0.1:{port}" for port in ports.numbers)
        at = iter(own)
        cluster = {job: [next(at) for _ in range(count)] for job, count in jobs.items()}
        found = {}
        for job, count in jobs.items():
            for index in range(count):
                task = {"type": job, "index": index}
                environ = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
                port = beside.rpartition(":")[2]
                if "ps" in jobs:
                    flags = [*flags, "--chief_works", f"--chief_worker_port={port}"]
                program = Program(*flags, environ=environ)
                found[f"{job} {index}"] = stack.enter_context(program)
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    "jobs",
    [{"ps": 1, "worker": 2}, {"worker": 2}],
    ids=["ps", "allreduce"],
)
def test_a_job_without_a_chief_trains(
    jobs: dict, datasets: Datasets, job_dir: pathlib.Path
) -> None:
    mode = [] if "ps" in jobs else ["--mode.name=allreduce"]
    flags = trainer_flags(datasets.uneven, job_dir, *mode, eval_data=datasets.eval)
    with tasks_of(jobs, flags) as tasks:
        tasks["worker 0"].see("running as chief")
        tasks["worker 0"].see("TF_CONFIG has no chief: its worker 0 takes the chief's place")
        tasks["worker 1"].see(f"running as worker 0 of {2 if 'ps' in jobs else 1} ")
        assert {name: task.finish() for name, task in tasks.items()} == dict.fromkeys(tasks, 0)
    assert_gone(list(started.processes_with(f"--job_dir={job_dir}")))
    report = read_report(job_dir)
    trained = EPOCHS * sum(UNEVEN)
    counts = {name: report["examples"][name] for name in ("trained", "skipped", "bad")}
    assert counts == {"trained": trained, "skipped": 0, "bad": 0}
    assert len(report["workers"]) == 2
    assert report["metrics"]["auc"] > 0.6
