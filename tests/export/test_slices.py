"""Tables that no process can hold whole: written by each ps as they lie there."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests.checkpoint.saved_state import DATA
from tests.export.test_saved_model import LOAD
from tests.training_fixtures import Trainer, WithOptimizer, dataset, reused, save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.saved_values import named_checkpoint
from tfps.errors import RunError, UserError
from tfps.export import sliced_variables
from tfps.export.loaded_model import ExportedModel
from tfps.export.sliced_variables import RowEncoding
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.store import partitioned_variable
from trainer.chief.checkpoint_export import export_checkpoint

BATCH = {
    "numbers": np.linspace(-1, 1, 80, dtype="f4").reshape(20, 4),
    "token": np.arange(20),
}
LABELS = {"label": np.zeros(20, "i8")}


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=200, shards=1)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """A ps writes some hundred rows at once, so that each has several slices."""
    monkeypatch.setattr(partitioned_variable, "CHUNK_BYTES", 20_000)


def trained(trainer):
    trainer.coordinator.train(trainer.queue(), lambda: False, lambda progress: None)
    return trainer


def slices(path):
    """How many files of values the exported model has."""
    return len(list(pathlib.Path(path, "variables").glob("variables.data-*")))


def predictions(trainer):
    return trainer.step.predict(BATCH, LABELS)[1]["predictions"].numpy()


@pytest.mark.slow
def test_tensorflow_alone_predicts_what_the_parameters_on_three_ps_do(manifest, tmp_path):
    trainer = trained(reused(manifest, parts=3))
    for _ in range(2):  # the second replaces the first
        trainer.export(tmp_path / "export", whole_bytes=0)
    assert slices(tmp_path / "export") > 3
    found = ExportedModel.load(str(tmp_path / "export")).predict(BATCH)["predictions"]
    np.testing.assert_allclose(found, predictions(trainer), rtol=0, atol=1e-6)

    trainer.export(tmp_path / "whole")
    assert slices(tmp_path / "whole") == 1
    source, _ = trainer.shards()[0]
    printed = [
        subprocess.run(
            [sys.executable, "-c", LOAD, str(tmp_path / name), source.path],
            check=True,
            capture_output=True,
            text=True,
            cwd=tmp_path,
        ).stdout
        for name in ("export", "whole")
    ]
    in_slices, whole = (np.array(json.loads(text)) for text in printed)
    np.testing.assert_allclose(in_slices, whole, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(keras.optimizers.Adam(0.01, weight_decay=0.01), id="adam"),
        pytest.param(keras.optimizers.Adagrad(0.1), id="adagrad"),
    ],
)
def test_rows_of_a_checkpoint_are_those_of_its_last_update(manifest, tmp_path, optimizer):
    trainer = trained(Trainer(manifest, WithOptimizer(rule=optimizer), parts=3))
    directory = CheckpointDirectory(JobDir(tmp_path / "job"))
    save(directory, trainer.store, QueueState(1, trained=200), DATA)
    checkpoint = named_checkpoint(str(tmp_path / "job"))
    output = str(tmp_path / "export")
    export_checkpoint(trainer.experiment, checkpoint, output, dtype="bfloat16")
    assert slices(output) > 1
    found = ExportedModel.load(output).predict(BATCH)["predictions"]
    np.testing.assert_allclose(found, predictions(trainer), rtol=0, atol=0.01)
    export_checkpoint(trainer.experiment, checkpoint, str(tmp_path / "whole"))
    found = ExportedModel.load(str(tmp_path / "whole")).predict(BATCH)["predictions"]
    np.testing.assert_allclose(found, predictions(trainer), rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "share"), [("bfloat16", 0.6), ("int8", 0.4)])
def test_narrow_rows_take_less_room_and_predict_nearly_the_same(manifest, tmp_path, dtype, share):
    trainer = trained(Trainer(manifest, Smoke(dim=16), parts=3))
    trainer.export(tmp_path / "float32", whole_bytes=0)
    trainer.export(tmp_path / dtype, encoding=RowEncoding(dtype))
    found = ExportedModel.load(str(tmp_path / dtype)).predict(BATCH)["predictions"]
    assert 0 < np.abs(found - predictions(trainer)).max() < 0.01
    small, large = (
        sum(file.stat().st_size for file in (tmp_path / name / "variables").iterdir())
        for name in (dtype, "float32")
    )
    assert small < share * large


def test_an_id_outside_its_table_is_refused_by_name(manifest, tmp_path):
    reused(manifest).export(tmp_path / "export", whole_bytes=0)
    model = ExportedModel.load(str(tmp_path / "export"))
    for bad in (-1, 10**12):
        batch = {**BATCH, "token": np.full(20, bad)}
        with pytest.raises(RunError, match=f"id {bad} is outside table .*embeddings., which has"):
            model.predict(batch)


def test_rows_that_were_written_wrong_are_not_put_in_place(manifest, tmp_path, monkeypatch):
    write = sliced_variables.SlicedGroup.write
    monkeypatch.setattr(
        sliced_variables.SlicedGroup,
        "write",
        lambda self, prefix, first, rows: write(self, prefix, first, rows + 0.1),
    )
    with pytest.raises(RunError, match="the exported model is not the one that was trained"):
        reused(manifest).export(tmp_path / "export", whole_bytes=0)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_the_ps_do_not_share_is_refused(manifest, tmp_path, monkeypatch):
    write = sliced_variables.SlicedGroup.write
    elsewhere = str(tmp_path / "elsewhere" / "variables")
    monkeypatch.setattr(
        sliced_variables.SlicedGroup,
        "write",
        lambda self, prefix, first, rows: dataclasses.replace(
            write(self, elsewhere, first, rows), prefix=f"{prefix}.slice-0-{first}"
        ),
    )
    with pytest.raises(UserError, match="that chief and ps see alike"):
        reused(manifest).export(tmp_path / "export", whole_bytes=0)


@dataclasses.dataclass(frozen=True)
class TwoWidths(Smoke):
    """Two tables of one width and one of another, looked up by ids of several shapes."""

    def build_model(self):
        numbers = keras.Input([4], name="numbers")
        token = keras.Input([], name="token", dtype="int64")
        ids = keras.layers.Lambda(lambda x: tf.stack([x, x // 2], 1))(token)
        parts = [
            keras.layers.Embedding(self.vocabulary, 8, name="wide")(token),
            keras.layers.Embedding(self.vocabulary, 8, name="other")(token // 3),
            keras.layers.Flatten()(keras.layers.Embedding(self.vocabulary, 3, name="narrow")(ids)),
        ]
        joined = keras.layers.Concatenate()([numbers, *parts])
        return keras.Model({"numbers": numbers, "token": token}, keras.layers.Dense(1)(joined))


@pytest.mark.slow
def test_small_groups_stay_whole_while_they_fit(manifest, tmp_path):
    trainer = trained(Trainer(manifest, TwoWidths(), parts=3))
    narrow = 4 * 3 * trainer.store.groups[0].layout.total_rows
    for limit, groups in ((0, 2), (narrow, 1), (1 << 30, 0)):
        trainer.export(tmp_path / str(groups), whole_bytes=limit)
        loaded = tf.saved_model.load(str(tmp_path / str(groups)))
        assert len(loaded.slices) == groups
        found = ExportedModel.load(str(tmp_path / str(groups))).predict(BATCH)["predictions"]
        np.testing.assert_allclose(found, predictions(trainer), rtol=0, atol=1e-6)
