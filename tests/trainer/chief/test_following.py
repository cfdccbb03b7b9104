"""A job that follows the checkpoints of another one, in this process."""

import dataclasses
import io
import json
import logging
import pathlib
import shutil

import pytest

from tests.job_dir.reports import short_report
from tests.training_fixtures import dataset, reused, save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.cluster.spec import Cluster
from tfps.errors import RunError, UserError
from tfps.evaluation.history import Evaluations
from tfps.export.versions import newest_version
from tfps.job_dir import report
from tfps.leases.queue_state import QueueState
from trainer.chief.following import FollowingPlan
from trainer.chief.inputs import evaluator_of
from trainer.chief.interruption import Interruption
from trainer.chief.monitoring import Monitoring
from trainer.chief.run import run
from trainer.chief.run_inputs import RunInputs
from trainer.chief.wait_limits import WaitLimits
from trainer.console.progress_display import ProgressDisplay

RECORDS = 101


class Followed:
    """A job that has saved two checkpoints."""

    def __init__(self, directory):
        self.data = str(directory / "data")
        self.trainer = reused(dataset(self.data, records=RECORDS))
        self.dir = str(directory / "job")
        self.names = []
        for epoch in (1, 2):
            queue = self.trainer.queue(epoch, QueueState(epoch - 1))
            self.trainer.coordinator.train(queue, lambda: False, lambda progress: None)
            data = (self.trainer.manifest.identity,)
            directory = CheckpointDirectory(self.dir)
            self.names.append(save(directory, self.trainer.store, QueueState(epoch), data).name)
        self.loss = self.trainer.evaluate().loss
        self.ends("finished")

    def ends(self, status):
        report.write(self.dir, short_report(status=status))

    def forget(self):
        shutil.rmtree(f"{self.dir}/evaluations", ignore_errors=True)
        shutil.rmtree(f"{self.dir}/export_best", ignore_errors=True)

    def follow(self, job_dir, wait_seconds=0.0):
        """Runs the job that follows to its end; returns its report."""
        plan = FollowingPlan(self.dir, wait_seconds, lost_seconds=0.0)
        experiment = plan.experiment(self.trainer.experiment, self.data)
        inputs = RunInputs.check(experiment, Cluster(), str(job_dir), None, use=plan.use)
        display = ProgressDisplay(io.StringIO(), False)
        interruption = Interruption(grace_seconds=0.0)
        run(inputs, WaitLimits(), interruption, display, Monitoring(), prepare=plan.prepare)
        return report.read(str(job_dir))


@pytest.fixture(name="made", scope="module")
def made_fixture(tmp_path_factory):
    return Followed(tmp_path_factory.mktemp("followed"))


@pytest.fixture(name="followed")
def followed_fixture(made):
    made.forget()
    made.ends("finished")
    return made


def test_the_newest_checkpoint_is_evaluated_where_its_job_looks(followed, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    done = followed.follow(tmp_path)
    [evaluation] = Evaluations(followed.dir).all()
    assert (evaluation.checkpoint, evaluation.records) == (followed.names[1], RECORDS)
    assert evaluation.metrics["loss"] == pytest.approx(followed.loss, abs=1e-6)
    assert (done["status"], done["metrics"]) == ("finished", evaluation.metrics)
    assert done["evaluations"] == [
        {"epoch": 2, "steps": evaluation.steps, **evaluation.metrics},
    ]
    assert f"passing over {followed.names[0]}: {followed.names[1]} is newer" in caplog.text
    version = newest_version(f"{followed.dir}/export_best")
    schema = json.loads(pathlib.Path(version, "schema.json").read_text())
    assert schema["checkpoint"] == followed.names[1]
    assert report.read(followed.dir)["status"] == "finished"  # what it follows is as it was

    caplog.clear()
    again = followed.follow(tmp_path)
    assert "evaluating" not in caplog.text
    assert again["metrics"] == evaluation.metrics


def test_an_interrupted_job_is_waited_for_and_then_done(followed, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    followed.ends("interrupted")
    done = followed.follow(tmp_path, wait_seconds=0.5)
    assert "is interrupted: waiting up to 0 s for it to run" in caplog.text
    assert (done["status"], len(done["evaluations"])) == ("finished", 1)


def test_a_job_without_a_checkpoint_leaves_nothing_to_report(followed, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    report.write(str(other), short_report(status="failed"))
    own, followed_dir = tmp_path / "own", followed.dir
    followed.dir = str(other)
    try:
        with pytest.raises(RunError, match="has ended without a checkpoint: nothing was evaluated"):
            followed.follow(own)
    finally:
        followed.dir = followed_dir
    assert report.read(str(own))["status"] == "failed"


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (Cluster(), "--train.evaluator_job=true in a job without workers and ps"),
        (Cluster(("c:1",), ("w:1",), ("p:1",), ("e:1",)), "in a job that has an evaluator"),
    ],
)
def test_a_job_that_nobody_can_follow_is_refused(made, cluster, message):
    train = dataclasses.replace(made.trainer.experiment.train, evaluator_job=True)
    experiment = dataclasses.replace(made.trainer.experiment, train=train)
    with pytest.raises(UserError, match=message):
        evaluator_of(experiment, cluster)
