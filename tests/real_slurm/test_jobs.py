"""Jobs on a real Slurm of three nodes, from submitting them to their last record.

`make slurm` runs them; each of its tests waits for Slurm, and for TensorFlow to start on a machine
that all nodes share.
"""

import pathlib
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests import counting_task
from tests.integration.counting_job import trained
from tests.loaded import client
from tests.real_slurm.jobs import PATIENCE, RECORDS, Job
from tests.real_slurm.slurm import NODES, RealSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]
TASK = counting_task.CountingTask(records=RECORDS)


@pytest.fixture(name="slurm", scope="module")
def slurm_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSlurm]:
    with RealSlurm(tmp_path_factory.mktemp("slurm")) as slurm:
        yield slurm
    assert slurm.processes() == []


Submit = Callable[..., Job]


@pytest.fixture(name="data")
def data_fixture(tmp_path: pathlib.Path):
    return counting_task.write(tmp_path / "data", TASK, [75] * 8)


@pytest.fixture(name="submit")
def submit_fixture(slurm: RealSlurm, tmp_path: pathlib.Path, data) -> Iterator[Submit]:
    """Submits a job with a directory of its own; at the end no process of any job is left."""

    def submit(*trainer: str, name: str = "run", **settings) -> Job:
        return Job(slurm, tmp_path / name, *trainer, **settings)

    yield submit
    slurm.end_jobs()
    left = [x.cmdline() for x in slurm.processes() if "SLURM_JOB_ID" in x.environ()]
    assert left == []


def counts(data, job: Job, epochs: int) -> np.ndarray:
    """How often each record was trained by a job that has ended."""
    return trained(data, TASK, job.job_dir, epochs)


def assert_complete(data, job: Job, epochs: int) -> None:
    """Each record was trained once an epoch, and a killed worker's batches perhaps again."""
    found, examples = counts(data, job, epochs), job.report()["examples"]
    assert (examples["skipped"], job.report()["status"]) == (0, "finished")
    assert found.min() >= epochs
    assert found.sum() <= epochs * RECORDS + examples["repeated"]


def test_a_job_is_submitted_listed_and_followed(slurm: RealSlurm, submit: Submit, data) -> None:
    job = submit(
        f"--data.eval={data.directory}",
        submit=(
            *("--workers=2", "--ps=2", "--evaluator", "--nodes=3", "--name=counting-task"),
            *("--sbatch=nice=7", "--setup=export SEEN_BY=tasks"),
        ),
        name="first",
    )
    job.see(r"connected to 2 workers and 2 ps")
    assert slurm.field(job.number, "Nice") == "7"
    assert job.process("ps").environ()["SEEN_BY"] == "tasks"
    assert job.number in job.cloud_submit("list").stdout
    assert "JobState=RUNNING" in job.cloud_submit("describe", job.number).stdout
    followed = job.cloud_submit("follow", job.number, "--poll_seconds=1")
    assert followed.returncode == 0, followed.stderr
    lines = followed.stdout.splitlines()
    assert f"[submit] job {job.number} (counting-task): COMPLETED" in lines
    for task in ("worker 0", "worker 1", "ps 0", "ps 1", "evaluator 0"):
        assert any(line.startswith(f"[{task}] ") and " as " in line for line in lines), task
    assert f"worker 1 of 2 serves at {NODES[1]}:" in job.log("worker-1")
    assert (counts(data, job, 2) == 2).all()
    assert "Killed" not in job.log()


def test_each_task_that_is_killed_is_started_again(submit: Submit, data) -> None:
    job = submit(epochs=4)
    for number, (name, seen) in enumerate(
        {
            "worker": "",
            "ps": "",
            "chief": "chief ended with 137; again in 1 s",
        }.items(),
        1,
    ):
        job.see(rf"saved .*-00000{number}-0+:")
        job.process(name).send_signal(signal.SIGKILL)
        if seen:
            job.see(seen)
    assert job.end() == "COMPLETED", job.log()
    for task in ("worker-0", "ps-0"):
        assert "ended with 137; again in 1 s" in job.log(task)
    assert_complete(data, job, 4)


def test_a_job_that_is_cancelled_saves_and_the_same_command_resumes_it(
    submit: Submit, data
) -> None:
    job = submit(epochs=2)
    job.see(r"epoch 1 of 2 trained")
    assert job.cloud_submit("cancel", job.number).returncode == 0
    assert job.end() == "CANCELLED"
    assert "stopped by SIGTERM" in job.log()
    assert job.report()["status"] == "interrupted"
    saved = job.report()["examples"]["trained"]
    again = submit(epochs=2)
    assert again.end() == "COMPLETED", again.log()
    assert f": {saved:,} records trained" in again.log()
    assert (counts(data, again, 2) == 2).all()


def test_a_job_whose_nodes_are_taken_saves_and_is_queued_again(submit: Submit, data) -> None:
    job = submit(epochs=2)
    job.see(r"epoch 1 of 2 trained")
    other = submit(
        epochs=1, name="urgent", submit=("--workers=2", "--ps=1", "--nodes=3", "--partition=urgent")
    )
    assert other.end() == "COMPLETED", other.log()
    assert job.end() == "COMPLETED", job.log()
    assert job.log().count("stopped by SIGTERM") == 1
    assert job.log().count("resuming from") == 1
    assert (counts(data, job, 2) == 2).all()


def test_at_its_time_limit_a_job_is_queued_again_until_it_has_trained(
    slurm: RealSlurm, submit: Submit, data
) -> None:
    job = submit(
        epochs=5,
        step_seconds=1.0,
        submit=("--workers=2", "--ps=1", "--nodes=3", "--timeout_seconds=180"),
    )
    assert job.end(4 * PATIENCE) == "COMPLETED", job.log()
    restarts = int(slurm.field(job.number, "Restarts"))
    assert restarts >= 2
    assert job.log().count("the time is almost over") == restarts
    assert job.log().count("stopped by SIGTERM") == restarts
    assert job.log().count("resuming from") == restarts
    assert "Killed" not in job.log()
    assert (counts(data, job, 5) == 5).all()


def test_a_job_without_cluster_is_queued_again_too(slurm: RealSlurm, submit: Submit, data) -> None:
    """Slurm's signal is sent by hand: what comes before it is shown above."""
    job = submit("--mode.name=local", epochs=2, submit=("--workers=0", "--nodes=1"))
    job.see(r"epoch 1 of 2 trained")
    slurm.run("scancel", "--batch", "--signal=USR1", job.number)
    job.see(r"resuming from")
    assert job.end() == "COMPLETED", job.log()
    assert (counts(data, job, 2) == 2).all()


def test_a_job_whose_time_is_over_while_it_starts_is_queued_again(
    slurm: RealSlurm, submit: Submit, data
) -> None:
    job = submit(epochs=1)
    job.see(r"running as chief")
    slurm.run("scancel", "--batch", "--signal=USR1", job.number)
    job.wait(lambda: int(slurm.field(job.number, "Restarts")) == 1, "queued again")
    assert job.end() == "COMPLETED", job.log()
    assert (counts(data, job, 1) == 1).all()


def test_a_job_gets_other_numbers_of_workers_and_ps(submit: Submit, data) -> None:
    job = submit("--train.checkpoint_seconds=1", epochs=15)
    job.see(r"saved ")
    flags = (f"--job_dir={job.job_dir}", "--workers=3", "--ps=2", f"--wait_seconds={PATIENCE}")
    done = client.run("trainer.resize", *flags, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert job.end() == "COMPLETED", job.log()
    assert "beginning again with chief=1 worker=3 ps=2, of chief=1 worker=2 ps=1" in job.log()
    assert job.report()["cluster"] == {"workers": 3, "ps": 2}
    assert (counts(data, job, 15) == 15).all()


def test_a_job_outlives_the_node_of_a_worker(slurm: RealSlurm, submit: Submit, data) -> None:
    job = submit(epochs=3)
    job.see(r"epoch 1 of 3 trained")
    # Slurm takes the node back by itself, since its daemon answers.
    slurm.run("scontrol", "update", f"nodename={NODES[1]}", "state=down", "reason=test")
    assert job.end() == "COMPLETED", job.log()
    assert "lost" in job.log()
    assert_complete(data, job, 3)


def test_a_second_job_waits_for_the_nodes(submit: Submit, data) -> None:
    first = submit(epochs=1, name="first")
    second = submit(epochs=1, name="second")
    first.see(r"connected to")
    assert second.state == "PENDING"
    for job in (first, second):
        assert job.end() == "COMPLETED", job.log()
        assert (counts(data, job, 1) == 1).all()


def test_two_jobs_at_once_on_the_same_nodes_have_ports_of_their_own(submit: Submit, data) -> None:
    """Where a partition shares its nodes by force."""
    flags = ("--workers=2", "--ps=1", "--nodes=3", "--partition=shared")
    jobs = [submit(epochs=2, name=name, submit=flags) for name in ("first", "second")]
    for job in jobs:
        job.see(r"connected to")
    assert [job.state for job in jobs] == ["RUNNING"] * 2
    for job in jobs:
        assert job.end() == "COMPLETED", job.log()
        assert (counts(data, job, 2) == 2).all()


def test_gpus_that_no_node_has_are_refused_at_once(
    slurm: RealSlurm, submit: Submit, data, tmp_path
) -> None:
    job = submit(epochs=1)
    refused = job.cloud_submit(
        "--workers=1",
        "--ps=1",
        "--machine=worker:accelerator=a100:1",
        "--",
        "--config=configs/smoke.py",
        "--job_dir=x",
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "sbatch: error" in refused.stderr
    assert refused.stderr.count("\n") == 1
