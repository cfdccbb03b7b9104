import numpy as np
import pytest
import tensorflow as tf

from tfps.data import examples
from tfps.data.example_encoder import RecordEncoder
from tfps.data.feature import Feature

FEATURES = (
    Feature("one", "float32"),
    Feature("several", "float32", (3,)),
    Feature("id", "int64", (), 1 << 40),
    Feature("numbers", "int64", (2,)),
    Feature("ids", "int64", (None,), 300),
    Feature("weights", "float32", (None,)),
    Feature("town", "string"),
    Feature("towns", "string", (2,)),
    Feature("tags", "string", (None,)),
)
COUNT = 200


def columns() -> dict[str, list[list]]:
    draw = np.random.default_rng(0)
    edges = [0, 1, 127, 128, 16383, 16384, (1 << 40) - 1]
    signed = [-1, 0, (1 << 63) - 1, -(1 << 63), 300]
    sizes = draw.integers(0, 40, COUNT).tolist()
    word = [bytes(draw.integers(0, 256, size, np.uint8)) for size in draw.integers(0, 200, COUNT)]
    return {
        "one": [[float("inf"), 3e38, 1, 0.1, *draw.normal(size=COUNT - 4).tolist()]],
        "several": draw.normal(size=(3, COUNT)).tolist(),
        "id": [(edges * COUNT)[:COUNT]],
        "numbers": [(signed * COUNT)[:COUNT], (edges * COUNT)[:COUNT]],
        "ids": [[draw.integers(0, 300, size).tolist() for size in sizes]],
        "weights": [[draw.normal(size=size).tolist() for size in sizes]],
        "town": [word],
        "towns": [word, word[::-1]],
        "tags": [[word[:3] if size % 2 else [] for size in sizes]],
    }


def test_records_mean_what_those_of_tensorflow_mean() -> None:
    made = columns()
    records = RecordEncoder(FEATURES).encode(made)
    assert len(records) == COUNT
    ragged = {feature.name for feature in FEATURES if feature.is_ragged}
    for row, record in enumerate(records):
        values = {
            name: made[name][0][row] if name in ragged else [column[row] for column in made[name]]
            for name in made
        }
        found = tf.train.Example.FromString(record)
        expected = tf.train.Example.FromString(examples.encode(values, FEATURES))
        assert set(found.features.feature) == set(expected.features.feature)
        for name, feature in expected.features.feature.items():
            kind = feature.WhichOneof("kind")
            assert kind is None or found.features.feature[name] == feature, name
            assert kind is not None or found.features.feature[name].ByteSize() < 5
    batches = [
        examples.parse(tf.constant(some), FEATURES)[0]
        for some in (records, [tf.train.Example.FromString(x).SerializeToString() for x in records])
    ]
    for name in made:
        first, second = (batch[name] for batch in batches)
        assert first.shape == second.shape
        equal = (first.flat_values if name in ragged else first).numpy()
        np.testing.assert_array_equal(
            equal, (second.flat_values if name in ragged else second).numpy()
        )


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        (Feature("f", "int64"), [[1.5]]),
        (Feature("f", "int64"), [["1"]]),
        (Feature("f", "int64"), [[1 << 63]]),
        (Feature("f", "int64", (), 3), [[0, 3]]),
        (Feature("f", "int64", (), 3), [[0, -1]]),
        (Feature("f", "int64", (None,), 3), [[[0], [1, 3]]]),
        (Feature("f", "float32"), [["1.5"]]),
        (Feature("f", "float32"), [[None]]),
        (Feature("f", "float32"), [[1e300]]),
        (Feature("f", "float32"), [[10**400]]),
        (Feature("f", "string"), [["text"]]),
        (Feature("f", "float32", (2,)), [[1.0]]),
    ],
)
def test_values_that_do_not_fit_are_refused(feature: Feature, values: list) -> None:
    with pytest.raises((ValueError, TypeError)):
        RecordEncoder([feature]).encode({"f": values})


def test_records_are_the_same_bytes() -> None:
    made = {name: values for name, values in columns().items() if name in ("id", "town", "several")}
    features = [feature for feature in FEATURES if feature.name in made]
    for row, record in enumerate(RecordEncoder(features).encode(made)):
        values = {name: [column[row] for column in made[name]] for name in made}
        assert record == examples.encode(values, features)


def test_no_records() -> None:
    assert RecordEncoder(FEATURES[4:6]).encode({"ids": [[]], "weights": [[]]}) == []
