"""Versions and deltas that a run exports while it trains, and who takes them."""

import dataclasses
import io
import json
import pathlib
import shutil
import time

import keras
import numpy as np
import pytest

import tfps
from configs.smoke import Smoke, get_config
from tests.trainer.serving.server import LIMIT, serving
from tests.training_fixtures import inputs_of
from tfps.checkpoint import commit_marker
from tfps.errors import UserError
from tfps.experiment.experiment import Data
from tfps.export import deltas
from tfps.export.loaded_model import ExportedModel
from trainer.chief import exports
from trainer.chief.interruption import Interruption
from trainer.chief.monitoring import Monitoring
from trainer.chief.run import run
from trainer.chief.wait_limits import WaitLimits
from trainer.console.terminal import ProgressDisplay
from trainer.datasets.generation import generate
from trainer.serving.app import DELTA_HEADER, VERSION_HEADER

LARGE = Smoke(vocabulary=25_000, dim=64)  # of which increments are saved
BATCH = {"numbers": np.linspace(-1, 1, 80, dtype="f4").reshape(20, 4), "token": np.arange(20)}


class Patient(keras.callbacks.Callback):
    """Trains no further than its epochs before what is named for them is there."""

    def __init__(self, awaited):
        super().__init__()
        self._awaited = awaited

    def on_epoch_end(self, epoch, logs=None):
        if path := self._awaited.get(epoch):
            await_until(path.exists)


def trained(directory, task=None, has_eval=False, versions=None, **settings):
    """The job_dir of a run of five epochs with deltas, which keeps all its checkpoints.

    It ends epochs of `versions` when their versions are there.
    """
    experiment = get_config()
    experiment = dataclasses.replace(experiment, task=task or experiment.task)
    generate(experiment, str(directory / "data"), 2000, 3, 0, 0, "smoke", False)
    settings = {"epochs": 5, "export_seconds": 1e9, "export_deltas": True, **settings}
    train = dataclasses.replace(experiment.train, keep_exports=9, keep_checkpoints=20, **settings)
    path = str(directory / "data")
    data = Data(train=path, eval=path if has_eval else "")
    export = directory / "job" / "export"
    awaited = {epoch: export / version for epoch, version in (versions or {}).items()}
    experiment = dataclasses.replace(
        experiment,
        data=data,
        train=train,
        callbacks=lambda task: [Patient(awaited)],
    )
    inputs = inputs_of(experiment, directory / "job")
    display = ProgressDisplay(io.StringIO(), False)
    run(inputs, WaitLimits(), Interruption(grace_seconds=0.0), display, Monitoring())
    return directory / "job"


@pytest.fixture(name="job", scope="module")
def job_fixture(tmp_path_factory):
    """It exported a version, deltas of it, and a version at its end."""
    return trained(tmp_path_factory.mktemp("job"), versions={1: "1"})


def copied(job, target, *parts):
    """A part of what a job exported, as if it came there in one piece."""
    source, place = job.joinpath("export", *parts), target.joinpath("export", *parts)
    place.parent.mkdir(parents=True, exist_ok=True)
    staged = place.with_name(f"{place.name}.tmp")
    shutil.copytree(source, staged)
    staged.rename(place)


def without_deltas(job, target):
    copied(job, target, "1")
    shutil.rmtree(target / "export" / "1" / "deltas")


def await_until(holds):
    ends = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.05)


def test_checkpoints_between_two_versions_are_deltas_of_the_first(job):
    assert sorted(x.name for x in (job / "export").iterdir()) == ["1", "2"]
    base = str(job / "export" / "1")
    found = deltas.numbers(base)
    assert 1 <= len(found) <= 2
    schema = json.loads(pathlib.Path(base, "schema.json").read_text())
    described = deltas.describe(deltas.path_of(base, found[-1]))
    assert described.version == schema["checkpoint"] == schema["base"]
    saved = {path.name for path in (job / "checkpoints").iterdir()}
    assert {described.version, described.checkpoint} <= saved
    assert deltas.numbers(str(job / "export" / "2")) == []


@pytest.mark.slow
def test_deltas_of_a_version_are_exported_while_the_next_is_written(tmp_path, monkeypatch):
    base = tmp_path / "job" / "export"
    write, checkpoints = exports.export, []

    def newest_delta():
        found = deltas.numbers(str(base / "1"))
        return deltas.describe(deltas.path_of(str(base / "1"), found[-1])) if found else None

    def write_once_there_is_a_later_delta(task, parameters, path, sample, form, facts):
        if path.endswith("/2"):
            checkpoints.append(facts["checkpoint"])
            await_until(lambda: (last := newest_delta()) and last.checkpoint > checkpoints[0])
        return write(task, parameters, path, sample, form, facts)

    monkeypatch.setattr(exports, "export", write_once_there_is_a_later_delta)
    job = trained(tmp_path, LARGE, versions={1: "1", 8: "2"}, epochs=12, export_seconds=0.001)
    saved = commit_marker.read(str(job / "checkpoints" / newest_delta().checkpoint))
    assert (saved.increment.since.name, saved.base.name) == (newest_delta().version, checkpoints[0])
    changed, later = (ExportedModel.load(str(base / number)) for number in "12")
    assert changed.update()
    values = [model.predict(BATCH)["predictions"] for model in (changed, later)]
    assert not np.array_equal(*values)


def test_a_model_that_is_followed_takes_deltas_and_versions(job, tmp_path):
    without_deltas(job, tmp_path)
    model = tfps.load_model(str(tmp_path), follow=True)
    first = model.predict(BATCH)["predictions"]
    copied(job, tmp_path, "1", "deltas")
    await_until(lambda: model.delta)
    changed = model.predict(BATCH)["predictions"]
    assert not np.array_equal(changed, first)
    copied(job, tmp_path, "2")
    await_until(lambda: model.directory.endswith("2"))
    wanted = ExportedModel.load(str(job / "export" / "2")).predict(BATCH)["predictions"]
    np.testing.assert_array_equal(model.predict(BATCH)["predictions"], wanted)
    assert model.delta == 0
    model.close()


def test_a_server_takes_deltas(job, tmp_path):
    without_deltas(job, tmp_path)
    rows = [{"numbers": [0.5] * 4, "token": 3}]
    with serving(tmp_path, "--poll_seconds=0.1") as server:

        def ask():
            body = json.dumps({"instances": rows}).encode()
            status, headers, text = server.raw("POST", "/v1/models/default:predict", body)
            assert status == 200
            numbers = headers[VERSION_HEADER], headers[DELTA_HEADER]
            return numbers, json.loads(text)["predictions"]

        (headers, before), newest = ask(), max(deltas.numbers(str(job / "export" / "1")))
        assert headers == ("1", "0")
        copied(job, tmp_path, "1", "deltas")
        await_until(lambda: ask()[0] == ("1", str(newest)))
        assert ask()[1] != before


@pytest.mark.slow
def test_a_refused_version_is_tried_again_when_one_is_due(tmp_path, caplog):
    """Not at once, though no delta can be made without one."""
    job = trained(tmp_path, has_eval=True, export_if=("loss<0.0001",))
    assert [x.name for x in (job / "export").iterdir()] == ["refused"]
    assert caplog.text.count(": the model is exported to") == 2  # first, and at the end


@pytest.mark.parametrize(
    "settings", [{}, {"export_seconds": 9.0, "largest_increment": 0.0}], ids=["end", "full"]
)
def test_deltas_need_versions_and_increments(settings):
    with pytest.raises(UserError, match=r"export_deltas exports what has changed since a version"):
        tfps.Train(export_deltas=True, **settings)
