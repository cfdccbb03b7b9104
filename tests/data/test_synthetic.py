import numpy as np
import pytest

from configs.criteo import Criteo
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.experiment import metrics
from trainer.datasets.generation import PlantedSignal
from trainer.datasets.generation import drawn as drawn_features

LABEL = Feature("label", "int64", vocabulary=2)
MIXED = (
    Feature("numbers", "float32", (3,)),
    Feature("ids", "int64", (4,), 500),
    Feature("flag", "int64", (), 2),
    Feature("number", "float32"),
)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn(signal: PlantedSignal, seed: int, count: int):
    source = generator(seed)
    logits = signal.logits(drawn_features(signal.features, source, count))
    return logits, signal.labels(source, logits)


def test_columns_have_the_features_shapes_and_ids() -> None:
    columns = drawn_features(MIXED, generator(), 1000)
    assert {name: column.shape for name, column in columns.items()} == {
        "numbers": (1000, 3),
        "ids": (1000, 4),
        "flag": (1000,),
        "number": (1000,),
    }
    assert columns["ids"].dtype == np.int64
    assert columns["number"].dtype == np.float32
    assert (columns["ids"].min(), columns["flag"].max()) == (0, 1)
    assert columns["ids"].max() < 500


@pytest.mark.parametrize("features", [Criteo().features(), MIXED, MIXED[:1], MIXED[1:2]])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_best_auc_and_the_share_of_positives(features: tuple[Feature, ...], seed: int) -> None:
    signal = PlantedSignal(features, LABEL, seed)
    logits, labels = drawn(signal, 5, 20_000)
    assert 0.25 < labels.mean() < 0.30
    assert 0.80 < metrics.auc(labels, logits) < 0.86
    assert set(np.unique(labels)) == {0, 1}


def test_ids_are_skewed_and_reach_the_tail() -> None:
    ids = drawn_features(Criteo().features(), generator(), 5000)["categoricals"]
    counts = np.bincount(ids.reshape(-1), minlength=20_000)
    assert counts[0] > counts[1] > counts[5] > counts[100:110].mean()
    assert counts[10_000:].sum() > 0


def test_the_signal_depends_on_its_seed_only() -> None:
    columns = drawn_features(MIXED, generator(), 500)
    first = PlantedSignal(MIXED, LABEL, 7).logits(columns)
    np.testing.assert_array_equal(first, PlantedSignal(MIXED, LABEL, 7).logits(columns))
    assert not np.allclose(first, PlantedSignal(MIXED, LABEL, 8).logits(columns))
    same, again = (drawn(PlantedSignal(MIXED, LABEL, 7), 3, 100)[1] for _ in range(2))
    np.testing.assert_array_equal(same, again)


def test_equal_ids_of_two_columns_weigh_differently() -> None:
    signal = PlantedSignal((Feature("ids", "int64", (2,), 100),), LABEL, 0)
    logits = signal.logits({"ids": np.array([[3, 5], [5, 3]])})
    assert logits[0] != logits[1]


@pytest.mark.parametrize(
    ("feature", "label", "message"),
    [
        (Feature("text", "string"), LABEL, r"'text' \(string"),
        (Feature("count", "int64"), LABEL, r"'count' \(int64, without a vocabulary\)"),
        (MIXED[0], Feature("class", "int64", vocabulary=3), "'class' is not binary"),
        (MIXED[0], Feature("many", "float32", (2,)), "'many' is not binary"),
        (MIXED[0], Feature("text", "string"), "'text' is not binary"),
    ],
)
def test_schemas_that_cannot_be_generated(feature: Feature, label: Feature, message: str) -> None:
    with pytest.raises(UserError, match=message):
        PlantedSignal([feature], label, 0)
