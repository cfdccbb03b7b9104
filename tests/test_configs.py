import dataclasses
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.criteo import Criteo
from tests.integration.census_rows import census_rows
from tests.project import ROOT
from tests.trainer.one_dataset import prepare
from tests.training_fixtures import Trainer
from tfps.data import examples
from tfps.errors import UserError
from tfps.experiment import overrides
from tfps.experiment.experiment import Experiment
from tfps.export.loaded_model import ExportedModel
from trainer.datasets.generation import generate
from trainer.datasets.row_encoding import ConfiguredExperiment

CONFIGS = sorted(path.name for path in (ROOT / "configs").glob("[!_]*.py"))
OF_WORDS = "census_raw.py"  # whose tables Keras cannot hold


def batch(experiment: Experiment, directory: Path, records: int) -> tuple[dict, dict]:
    dataset = generate(experiment, str(directory), records=records, shards=1)
    serialized = tf.data.TFRecordDataset(dataset.path_of(dataset.shards[0])).batch(records)
    task = experiment.task
    return examples.parse(next(iter(serialized)), task.features(), task.labels())


def test_there_are_configs() -> None:
    assert {"census.py", "criteo.py", "smoke.py"} <= set(CONFIGS)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != OF_WORDS])
def test_a_config_builds_its_model_and_loss(name: str, tmp_path: Path) -> None:
    experiment = overrides.load(f"configs/{name}")
    task = experiment.task
    inputs, labels = batch(experiment, tmp_path / "data", 16)
    model = task.build_model()
    assert {tensor.name for tensor in model.inputs} == {f.name for f in task.features()}
    with tf.GradientTape() as tape:
        outputs = model(inputs, training=True)
        loss = task.compute_loss(inputs, task.label_values(labels), outputs) + sum(model.losses)
    assert outputs.shape == (16, 1)
    assert loss.shape == ()
    assert np.isfinite(loss)
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    assert all(gradient is not None for gradient in gradients)
    predictions = np.asarray(task.predictions(model(inputs)))
    assert predictions.shape == (16,)
    assert (predictions > 0).all()
    assert (predictions < 1).all()
    assert isinstance(task.optimizer(), keras.optimizers.Optimizer)
    fields = task.rows().fields
    for feature in (*task.features(), *task.labels()):
        assert len(fields[feature.name].columns) == feature.size
    assert set(task.metrics()) == {"auc", "accuracy"}


@pytest.mark.slow
def test_the_census_of_words_is_trained_and_predicts(tmp_path: Path) -> None:
    rows = tmp_path / "adult.data"
    rows.write_bytes(census_rows(256, seed=0))
    config = ConfiguredExperiment(f"configs/{OF_WORDS}")
    data = prepare(config, [str(rows)], str(tmp_path / "data"), shards=1)
    task = config().task
    trainer = Trainer(data, task)
    trainer.coordinator.train(trainer.queue(), lambda: False, print)
    trainer.export(tmp_path / "export")
    model = ExportedModel.load(str(tmp_path / "export"))
    words = next(table.name for table in model.tables if "occupation_deep" in table.name)
    assert np.abs(model.rows(words, ["Sales"])).min() > 0
    assert not model.rows(words, ["Astronaut"]).any()
    serialized = tf.data.TFRecordDataset(data.path_of(data.shards[0])).batch(256)
    inputs, _ = examples.parse(next(iter(serialized)), task.features(), task.labels())
    (predictions,) = model.predict(inputs).values()
    assert predictions.shape == (256,)
    assert (predictions > 0).all()
    assert (predictions < 1).all()
    assert set(task.metrics()) == {"auc", "accuracy"}


def test_criteo_is_a_dlrm_of_26_tables() -> None:
    model = Criteo().build_model()
    tables = [layer for layer in model.layers if isinstance(layer, keras.layers.Embedding)]
    assert [(table.input_dim, table.output_dim) for table in tables] == [(20_000, 16)] * 26
    dense = [layer.units for layer in model.layers if isinstance(layer, keras.layers.Dense)]
    assert dense == [128, 64, 1]


def test_criteo_with_interaction(tmp_path: Path) -> None:
    task = Criteo(rows_per_table=50, dim=4, mlp=(8,), interaction=True)
    model = task.build_model()
    assert model.get_layer("hidden_1").kernel.shape[0] == 13 + 26 * 4 + 26 * 25 // 2
    inputs, _ = batch(Experiment("small", task), tmp_path, 8)
    model(inputs)
    embeddings = [
        layer(inputs["categoricals"][:, index])
        for index, layer in enumerate(
            layer for layer in model.layers if isinstance(layer, keras.layers.Embedding)
        )
    ]
    concatenated = keras.Model(model.inputs, model.get_layer("concatenated").output)(inputs)
    expected = np.sum(np.asarray(embeddings[0]) * np.asarray(embeddings[1]), axis=1)
    np.testing.assert_allclose(concatenated[:, 26 * 4 + 13], expected, atol=1e-6)


def test_criteo_needs_rows_for_known_ids() -> None:
    with pytest.raises(UserError, match=r"rows_per_table=1 must be at least 2"):
        dataclasses.replace(Criteo(), rows_per_table=1)
