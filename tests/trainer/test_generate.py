import dataclasses
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from configs import census, criteo, smoke
from tests.loaded import client
from tfps.data import examples, manifest, schema
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from trainer.datasets.generation import generate

SMOKE = smoke.get_config()


@pytest.mark.parametrize("experiment", [smoke.get_config(), census.get_config()])
def test_records_of_any_schema(tmp_path: Path, experiment: Experiment) -> None:
    dataset = generate(experiment, str(tmp_path / "out"), records=1000, shards=3)
    assert [shard.records for shard in dataset.shards] == [334, 333, 333]
    assert dataset == manifest.read(str(tmp_path / "out"))
    schema.check(dataset, experiment.task.schema(), "--data.train")
    assert dataset.best_auc is not None
    assert 0.78 < dataset.best_auc < 0.9
    batches = tf.data.TFRecordDataset([dataset.path_of(shard) for shard in dataset.shards])
    features, labels = experiment.task.features(), experiment.task.labels()
    inputs, truth = examples.parse(next(iter(batches.batch(1000))), features, labels)
    assert 0.2 < np.mean(truth[labels[0].name]) < 0.35
    for feature in features:
        assert inputs[feature.name].shape == (1000, *feature.shape)


class Baskets(smoke.Smoke):
    def features(self) -> tuple[Feature, ...]:
        varying = Feature("ids", "int64", (None,), 30), Feature("weights", "float32", (None,))
        return (Feature("x", "float32"), *varying)


def test_features_of_varying_length_have_equally_many_values(tmp_path: Path) -> None:
    experiment = Experiment("baskets", Baskets())
    dataset = generate(experiment, str(tmp_path / "out"), records=1000, shards=1)
    assert dataset.features[1]["shape"] == [None]
    assert manifest.read(str(tmp_path / "out")) == dataset
    schema.check(dataset, experiment.task.schema(), "--data.train")
    assert dataset.best_auc is not None
    assert 0.78 < dataset.best_auc < 0.9
    records = tf.data.TFRecordDataset(dataset.path_of(dataset.shards[0])).batch(1000)
    inputs, _ = examples.parse(next(iter(records)), experiment.task.features())
    lengths = inputs["ids"].row_lengths().numpy()
    assert set(lengths) == {0, 1, 2, 3, 4, 5}
    np.testing.assert_array_equal(inputs["weights"].row_lengths(), lengths)


def test_more_than_one_block_of_criteo(tmp_path: Path) -> None:
    dataset = generate(criteo.get_config(), str(tmp_path / "out"), records=5000, shards=1)
    path = dataset.path_of(dataset.shards[0])
    assert sum(1 for _ in tf.data.TFRecordDataset(path)) == 5000


def test_seeds_decide_the_bytes(tmp_path: Path) -> None:
    def checksums(name: str, **seeds: int) -> list[str]:
        dataset = generate(SMOKE, str(tmp_path / name), records=20, shards=2, **seeds)
        return [shard.crc32c for shard in dataset.shards]

    first = checksums("first")
    assert first[0] != first[1]
    assert first == checksums("again")
    assert first != checksums("other", seed=1)


def test_labels_that_are_all_equal_have_no_best_auc(tmp_path: Path) -> None:
    dataset = generate(SMOKE, str(tmp_path / "out"), records=1, shards=1)
    assert dataset.best_auc is None
    assert manifest.read(str(tmp_path / "out")) == dataset


def test_a_schema_that_cannot_be_generated(tmp_path: Path) -> None:
    class Text(smoke.Smoke):
        def features(self) -> tuple[Feature, ...]:
            return (Feature("text", "string"),)

    with pytest.raises(UserError, match="'text'"):
        generate(Experiment("text", Text()), str(tmp_path / "out"), records=10, shards=1)
    assert not (tmp_path / "out").exists()


def test_weights_are_no_labels_and_a_task_needs_none(tmp_path: Path) -> None:
    class Weighted(smoke.Smoke):
        def weight(self) -> Feature:
            return Feature("weight", "float32")

    class Unlabelled(smoke.Smoke):
        def label(self) -> tuple[Feature, ...]:
            return ()

    dataset = generate(Experiment("w", Weighted()), str(tmp_path / "w"), records=2000, shards=1)
    assert dataset.best_auc is not None
    batch = tf.data.TFRecordDataset(dataset.path_of(dataset.shards[0])).batch(2000)
    task = Weighted()
    _, truth = examples.parse(next(iter(batch)), task.features(), task.labels())
    weights = truth["weight"].numpy()
    assert (weights > 0).all()
    assert weights.std() == pytest.approx(weights.mean(), rel=0.2)
    dataset = generate(Experiment("u", Unlabelled()), str(tmp_path / "u"), records=10, shards=1)
    assert ([shard.records for shard in dataset.shards], dataset.labels) == ([10], [])


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return client.run("trainer.generate", *arguments)


def test_the_command_prints_the_best_auc(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    flags = ("--config=configs/smoke.py", "--records=300", "--shards=2", f"--output={out}")
    done = run(*flags)
    assert done.returncode == 0, done.stderr
    best_auc = manifest.read(out).best_auc
    assert f"best AUC the planted signal allows: {best_auc:.4f}\n" in done.stdout
    assert done.stdout.startswith("smoke: 300 records in 2 shards")
    again = run(*flags)
    assert again.returncode == 2
    assert again.stderr.startswith(f"error: --output={out} already holds a dataset")
    assert run(*flags, "--overwrite", "--seed=4").returncode == 0


def test_several_labels_have_a_signal_each(tmp_path: Path) -> None:
    class Two(smoke.Smoke):
        def label(self) -> tuple[Feature, ...]:
            return (super().label(), Feature("other", "float32"))

    experiment = dataclasses.replace(SMOKE, task=Two())
    dataset = generate(experiment, str(tmp_path / "out"), records=2000, shards=1)
    assert [label["name"] for label in dataset.labels] == ["label", "other"]
    assert dataset.best_auc is None
    batch = tf.data.TFRecordDataset(dataset.path_of(dataset.shards[0])).batch(2000)
    task = experiment.task
    _, truth = examples.parse(next(iter(batch)), task.features(), task.labels())
    assert 0.2 < np.mean(truth["other"]) < 0.35
    assert np.mean(truth["other"].numpy() != truth["label"].numpy()) > 0.2
