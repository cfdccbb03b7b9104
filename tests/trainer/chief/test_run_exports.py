"""Versions and deltas that a run exports while it trains, and who takes them."""

import dataclasses
import io
import json
import pathlib
import shutil
import time

import numpy as np
import pytest

import tfps
from configs.smoke import get_config
from tests.trainer.serving.server import LIMIT, serving
from tests.training_fixtures import dataset, inputs_of
from tfps.errors import UserError
from tfps.experiment.experiment import Data
from tfps.export import deltas
from tfps.export.loaded_model import ExportedModel
from trainer.chief.interruption import Interruption
from trainer.chief.monitoring import Monitoring
from trainer.chief.run import run
from trainer.chief.wait_limits import WaitLimits
from trainer.console.terminal import ProgressDisplay
from trainer.serving.app import DELTA_HEADER, VERSION_HEADER

BATCH = {"numbers": np.linspace(-1, 1, 80, dtype="f4").reshape(20, 4), "token": np.arange(20)}


def trained(directory, has_eval=False, **settings):
    """The job_dir of a run of twelve epochs with deltas, of which every checkpoint stays."""
    dataset(directory / "data", records=2000)
    experiment = get_config()
    settings = {"epochs": 12, "export_seconds": 1e9, "export_deltas": True, **settings}
    train = dataclasses.replace(experiment.train, keep_exports=9, keep_checkpoints=20, **settings)
    path = str(directory / "data")
    data = Data(train=path, eval=path if has_eval else "")
    inputs = inputs_of(dataclasses.replace(experiment, data=data, train=train), directory / "job")
    display = ProgressDisplay(io.StringIO(), False)
    run(inputs, WaitLimits(), Interruption(grace_seconds=0.0), display, Monitoring())
    return directory / "job"


@pytest.fixture(name="job", scope="module")
def job_fixture(tmp_path_factory):
    """It exported a version, deltas of it, and a version at its end."""
    return trained(tmp_path_factory.mktemp("job"))


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
