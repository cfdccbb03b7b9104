"""The parts of a cluster's predictions: their sizes, before they are written and after."""

import dataclasses
import json
import os
import pathlib

import keras
import numpy as np
import pytest

from configs.smoke import get_config
from tests.training_fixtures import dataset, inputs_of
from tfps.data.record_source import pieces_of
from tfps.errors import UserError
from tfps.evaluation.metrics import EvaluatedPiece
from tfps.storage import files
from trainer.chief import preflight
from trainer.chief.data_pass import PartsOf, PassPlan, PredictionParts, predicted_bytes
from trainer.chief.run_inputs import first_values

FORMS = ("csv", "parquet", "tfrecord")
RECORDS = 6000


@pytest.fixture(name="inputs", scope="module")
def inputs_fixture(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    data = dataset(directory, records=RECORDS, shards=4).directory
    experiment = get_config()
    experiment = dataclasses.replace(
        experiment, data=dataclasses.replace(experiment.data, train=data)
    )
    return inputs_of(experiment, directory / "job")


def test_a_pass_needs_nothing_that_a_training_alone_does(inputs):
    experiment = inputs.settings.experiment
    train = dataclasses.replace(experiment.train, export_seconds=60.0, export_deltas=True)
    stop_early = keras.callbacks.EarlyStopping("val_auc")
    trained = dataclasses.replace(experiment, train=train, callbacks=lambda task: [stop_early])
    data = inputs.data.train.of_epoch(0).directory
    made = PassPlan(None).experiment(trained, data)
    own = inputs_of(made, inputs.settings.job_dir)
    assert not preflight.placement_of(own).snapshot_bytes(0)
    assert preflight.placement_of(inputs).snapshot_bytes(0)


def parts_in(directory, inputs, form, keep=("token",), checkpoint="checkpoint"):
    data = inputs.data.train.of_epoch(0)
    of = PartsOf((checkpoint, 1.0), data.identity, keep, form)
    return PredictionParts(str(directory), of, data, ["label"])


def write(parts, inputs, shards):
    """Writes parts with predictions that are drawn; returns their bytes."""
    draw = np.random.default_rng(1)
    values = first_values(inputs.settings.experiment.task, inputs.data.train.of_epoch(0))
    data = inputs.data.train.of_epoch(0)
    for piece in pieces_of(data, 1000, iter(shards)):
        known = {name: values[name].numpy()[: piece.records] for name in ("token", "label")}
        found = {"predictions": draw.random([piece.records, 1], np.float32)}
        parts.write(piece.shard, EvaluatedPiece(0.0, known, found, {}), piece.is_last)


@pytest.mark.parametrize("form", FORMS)
def test_the_manifest_has_the_bytes_of_parts_whoever_wrote_them(
    inputs, tmp_path, form, monkeypatch
):
    asked = []
    real_size = files.size
    monkeypatch.setattr(files, "size", lambda path: asked.append(path) or real_size(path))
    earlier = parts_in(tmp_path, inputs, form)
    write(earlier, inputs, [0, 2])
    parts = parts_in(tmp_path, inputs, form)
    assert parts.missing() == [1, 3]
    write(parts, inputs, parts.missing())
    manifest = json.loads(pathlib.Path(parts.finish()).read_text())
    assert [os.path.basename(path) for path in asked] == [parts.name(0), parts.name(2)]
    assert [part["bytes"] for part in manifest["parts"]] == [
        (tmp_path / part["file"]).stat().st_size for part in manifest["parts"]
    ]
    assert sum(part["records"] for part in manifest["parts"]) == RECORDS


@pytest.mark.parametrize("form", FORMS)
def test_what_parts_will_take_is_known_before_they_are_written(inputs, tmp_path, form):
    parts = parts_in(tmp_path, inputs, form)
    kept = [x for x in inputs.settings.experiment.task.features() if x.name == "token"]
    expected = predicted_bytes(inputs, parts, kept, form)
    write(parts, inputs, range(4))
    manifest = json.loads(pathlib.Path(parts.finish()).read_text())
    assert expected == pytest.approx(sum(part["bytes"] for part in manifest["parts"]), rel=0.2)
    assert predicted_bytes(inputs, parts, kept, form) == 0  # none is missing


def test_parts_of_something_else_are_refused_before_any_is_written(inputs, tmp_path):
    parts_in(tmp_path, inputs, "csv")
    with pytest.raises(UserError, match="has predictions of another checkpoint"):
        parts_in(tmp_path, inputs, "csv", keep=())


def test_parts_are_those_of_their_checkpoint_however_it_is_named(inputs, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(os.getcwd())
    parts = tmp_path / "parts"
    write(parts_in(parts, inputs, "csv"), inputs, [0])
    for name in (
        "./checkpoint",
        os.path.abspath("checkpoint"),
        "x/..//checkpoint",
        link / "checkpoint",
    ):
        assert parts_in(parts, inputs, "csv", checkpoint=str(name)).missing() == [1, 2, 3]
    with pytest.raises(UserError, match="has predictions of another checkpoint"):
        parts_in(parts, inputs, "csv", checkpoint="other")
    with pytest.raises(UserError, match="has predictions of another checkpoint"):
        parts_in(tmp_path / "cloud", inputs, "csv", checkpoint="gs://b/a") and parts_in(
            tmp_path / "cloud", inputs, "csv", checkpoint="gs://c/a"
        )
    parts_in(tmp_path / "cloud", inputs, "csv", checkpoint="gs://b//./a")
