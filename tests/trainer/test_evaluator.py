"""The evaluator in this process, on checkpoints that a chief might have written."""

import concurrent.futures
import dataclasses
import json
import logging
import pathlib
import shutil

import pytest

from tests.measured import task_metrics
from tests.training_fixtures import dataset, inputs_of, reused, save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.cluster.spec import Cluster
from tfps.errors import RunError, UserError
from tfps.evaluation.history import Evaluations
from tfps.experiment.experiment import Data
from tfps.export.versions import newest_version
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from trainer.evaluator import Evaluator

RECORDS = 101  # in shards of 34, 34 and 33
CLUSTER = Cluster(("h:1",), ("h:2",), ("h:3",), ("h:4",), job="evaluator")
_LOG = logging.getLogger("trainer.evaluator")


class Job:
    """A job whose chief has written some checkpoints of one model, ever longer trained."""

    def __init__(self, directory):
        self.data_dir = str(directory / "data")
        manifest = dataset(self.data_dir, records=RECORDS)
        self.trainer = reused(manifest)
        self.dir = str(directory / "job")
        self.checkpoints = CheckpointDirectory(JobDir(self.dir))
        self.saved, self.measured = [], []
        for epoch in (1, 2, 3):
            queue = self.trainer.queue(epoch, QueueState(epoch - 1))
            self.trainer.coordinator.train(queue, lambda: False, lambda progress: None)
            self.save(QueueState(epoch))

    def save(self, state):
        """Saves what the trainer's parameters are, and evaluates them as a chief does."""
        trainer = self.trainer
        data = (trainer.manifest.identity,)
        self.saved.append(save(self.checkpoints, trainer.store, state, data).name)
        found = trainer.evaluate()
        metrics = task_metrics(trainer.task, found.labels, found.predictions)
        self.measured.append({"loss": found.loss, **metrics})

    def newest(self):
        """Directory of the newest checkpoint."""
        return pathlib.Path(self.dir, "checkpoints", self.saved[-1])

    def inputs(self, **train):
        experiment = self.trainer.experiment
        experiment = dataclasses.replace(
            experiment,
            data=Data(train=self.data_dir, eval=self.data_dir),
            train=dataclasses.replace(experiment.train, **train),
        )
        return inputs_of(experiment, self.dir, CLUSTER)

    def evaluator(self, end_of_chief=None, **train):
        if end_of_chief is None:
            end_of_chief = concurrent.futures.Future()
            end_of_chief.set_result(None)
        return Evaluator(self.inputs(**train), end_of_chief, stall_seconds=60)

    def evaluated(self):
        return Evaluations(JobDir(self.dir)).all()

    def best(self):
        """The checkpoint that the newest version of the best model is of, by the version."""
        version = newest_version(f"{self.dir}/export_best")
        schema = json.loads(pathlib.Path(version, "schema.json").read_text())
        return pathlib.Path(version).name, schema["checkpoint"]


@pytest.fixture(name="made", scope="module")
def made_fixture(tmp_path_factory):
    return Job(tmp_path_factory.mktemp("job"))


@pytest.fixture(name="job")
def job_fixture(made, tmp_path):
    """The same for each test: its checkpoints, and nothing evaluated."""
    shutil.rmtree(f"{made.dir}/evaluations", ignore_errors=True)
    shutil.rmtree(f"{made.dir}/export_best", ignore_errors=True)
    shutil.copytree(f"{made.dir}/checkpoints", tmp_path / "kept")
    yield made
    shutil.rmtree(f"{made.dir}/checkpoints")
    shutil.copytree(tmp_path / "kept", f"{made.dir}/checkpoints")


@pytest.mark.slow
def test_a_checkpoint_that_does_not_fit_its_memory_is_refused(made, monkeypatch):
    monkeypatch.setattr("tfps.cluster.resources.memory_limit", lambda: 1 << 29)
    message = r"needs about \S+ \SiB; this one may have 512 MiB. Leave it out of the job"
    with pytest.raises(UserError, match=message):
        made.evaluator()


class OnMessage(logging.Handler):
    """Does something, once, while the evaluator logs a message that begins so."""

    def __init__(self, beginning, act):
        super().__init__()
        self._beginning, self._act = beginning, act

    def emit(self, record):
        if self._act and record.getMessage().startswith(self._beginning):
            act, self._act = self._act, None
            act()

    def __enter__(self):
        self._level_before = _LOG.level
        _LOG.setLevel(logging.INFO)
        _LOG.addHandler(self)

    def __exit__(self, *exception):
        _LOG.removeHandler(self)
        _LOG.setLevel(self._level_before)


def test_the_newest_is_evaluated_once_and_the_best_exported(job, caplog):
    caplog.set_level(logging.INFO, _LOG.name)
    evaluator = job.evaluator()
    evaluator.run()
    [evaluation] = job.evaluated()
    assert f"passing over {job.saved[0]}, {job.saved[1]}: {job.saved[2]} is newer" in caplog.text
    assert (evaluation.checkpoint, evaluation.epoch) == (job.saved[2], 3)
    assert evaluation.steps == job.trainer.steps() == 3 * 6  # 34 records are two batches of 32
    assert evaluation.records == RECORDS
    assert evaluation.metrics == pytest.approx(job.measured[2], abs=1e-6)
    assert job.best() == ("1", job.saved[2])

    caplog.clear()
    evaluator.run()  # as after a restart: nothing is left to do
    assert "evaluating" not in caplog.text
    assert job.evaluated() == [evaluation]


@pytest.mark.slow
def test_only_a_better_one_replaces_the_best(job, tmp_path):
    """The longer the model is trained here, the lower its loss."""
    assert job.measured[0]["loss"] > job.measured[1]["loss"] > job.measured[2]["loss"]
    newest = job.newest().rename(tmp_path / "newest")
    evaluator = job.evaluator(best_metric="max:loss")
    evaluator.run()
    assert job.best() == ("1", job.saved[1])
    newest.rename(job.newest())
    evaluator.run()
    assert [x.checkpoint for x in job.evaluated()] == job.saved[1:]
    assert job.best() == ("1", job.saved[1])

    Evaluations(JobDir(job.dir)).delete(lambda x: x.epoch == 3)
    job.evaluator(best_metric="loss").run()
    assert job.best() == ("2", job.saved[2])


@pytest.mark.slow
def test_a_checkpoint_that_is_deleted_meanwhile_is_passed_over(job, caplog):
    caplog.set_level(logging.INFO, _LOG.name)
    with OnMessage(f"evaluating {job.saved[2]}", lambda: shutil.rmtree(job.newest())):
        job.evaluator().run()
    assert f"{job.newest()} was deleted before it was read" in caplog.text
    assert [x.checkpoint for x in job.evaluated()] == [job.saved[1]]


@pytest.mark.slow
def test_what_comes_while_another_is_evaluated_is_evaluated_too(job, tmp_path):
    newest = job.newest().rename(tmp_path / "newest")
    end_of_chief = concurrent.futures.Future()

    def finish():
        newest.rename(job.newest())
        end_of_chief.set_result(None)

    with OnMessage("evaluated", finish):
        job.evaluator(end_of_chief).run()
    assert [x.checkpoint for x in job.evaluated()] == job.saved[1:]


@pytest.mark.slow
def test_without_a_chief_what_there_is_is_evaluated_before_the_end(job):
    end_of_chief = concurrent.futures.Future()
    end_of_chief.set_exception(RunError("the chief did not appear"))
    with pytest.raises(RunError, match="the chief did not appear"):
        job.evaluator(end_of_chief).run()
    assert len(job.evaluated()) == 1


@pytest.mark.slow
def test_it_waits_for_a_checkpoint(job, tmp_path):
    shutil.move(f"{job.dir}/checkpoints", tmp_path / "later")
    asked = []

    class EndOfChief(concurrent.futures.Future):
        """Its last checkpoint comes, and it ends, when the evaluator has found none once."""

        def done(self):
            asked.append(1)
            if len(asked) == 2:
                shutil.copytree(tmp_path / "later", f"{job.dir}/checkpoints")
                self.set_result(None)
            return super().done()

    job.evaluator(EndOfChief()).run()
    assert [x.checkpoint for x in job.evaluated()] == [job.saved[2]]


def test_a_checkpoint_that_cannot_be_read_is_named(job):
    for file in job.newest().glob("parameters.data*"):
        file.unlink()
    with pytest.raises(RunError, match=rf"{job.saved[2]} cannot be read \(.*start the evaluator"):
        job.evaluator().run()
    assert job.evaluated() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"best_metric": "rmse"}, "there is no metric 'rmse'; use one of loss, auc, accuracy"),
        ({"early_stopping": -1}, "train.early_stopping=-1 must be at least 0"),
    ],
)
def test_settings_of_evaluation_are_checked(job, change, message):
    with pytest.raises(UserError, match=message):
        job.inputs(**change)


@pytest.mark.parametrize(
    ("cluster", "patience", "message"),
    [
        (CLUSTER, 0, "the job has an evaluator but no --data.eval"),
        (
            dataclasses.replace(CLUSTER, job="chief"),
            0,
            "the job has an evaluator but no --data.eval",
        ),
        (Cluster(), 3, "--train.early_stopping=3 without --data.eval"),
    ],
)
def test_what_needs_evaluation_data_is_refused_without(job, cluster, patience, message):
    experiment = job.trainer.experiment
    experiment = dataclasses.replace(
        experiment,
        mode=None,
        data=Data(train=job.data_dir),
        train=dataclasses.replace(experiment.train, early_stopping=patience),
    )
    with pytest.raises(UserError, match=message):
        inputs_of(experiment, job.dir, cluster)
