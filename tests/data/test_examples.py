import re

import numpy as np
import pytest
import tensorflow as tf

from tests.data.example_records import UNSET, example, value
from tfps.data import examples
from tfps.data.bad_records import find_problem
from tfps.data.feature import Feature
from tfps.errors import UserError

FEATURES = (
    Feature("x", "float32", (3,)),
    Feature("token", "int64", vocabulary=10),
    Feature("grid", "int64", (2, 2)),
    Feature("text", "string"),
)
LABEL = Feature("label", "float32")
VALUES = {
    "x": [0.5, 1, -2.0],
    "token": 9,
    "grid": np.arange(4).reshape(2, 2),
    "text": b"\xffabc",
    "label": 1,
}


def batch() -> tf.Tensor:
    first = examples.encode(VALUES, FEATURES, [LABEL])
    second = examples.encode({**VALUES, "token": 0, "label": 0.0}, FEATURES, [LABEL])
    return tf.constant([first, second])


def test_a_batch_comes_back_as_it_was_written() -> None:
    inputs, labels = examples.parse(batch(), FEATURES, [LABEL])
    assert list(inputs) == ["x", "token", "grid", "text"]
    np.testing.assert_array_equal(inputs["x"], [[0.5, 1, -2]] * 2)
    np.testing.assert_array_equal(inputs["token"], [9, 0])
    np.testing.assert_array_equal(inputs["grid"], [[[0, 1], [2, 3]]] * 2)
    assert inputs["text"].numpy().tolist() == [b"\xffabc"] * 2
    np.testing.assert_array_equal(labels["label"], [1.0, 0.0])
    assert (inputs["token"].dtype, labels["label"].dtype) == (tf.int64, tf.float32)


def test_without_a_label() -> None:
    serialized = tf.constant([examples.encode(VALUES, FEATURES)])
    inputs, labels = examples.parse(serialized, FEATURES)
    assert labels == {}
    assert set(inputs) == {"x", "token", "grid", "text"}


def test_inside_a_dataset_and_a_function() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(batch()).batch(2)
    dataset = dataset.map(lambda serialized: examples.parse(serialized, FEATURES, [LABEL]))
    (inputs, labels) = next(iter(dataset))
    assert inputs["grid"].shape == (2, 2, 2)
    traced = tf.function(lambda serialized: examples.parse(serialized, FEATURES, [LABEL])[1])
    np.testing.assert_array_equal(traced(batch())["label"], labels["label"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": [1.0, 2.0]}, r"feature 'x': 2 values, but its shape \(3,\) holds 3"),
        ({"token": 10}, r"feature 'token': an id in \[10\] lies outside \[0, 10\)"),
        ({"token": -1}, "outside"),
        ({"token": 1.5}, r"feature 'token' \(int64\)"),
        ({"token": "1"}, r"feature 'token' \(int64\)"),
        ({"token": 2**63}, "outside"),
        ({"grid": [2**63, 0, 0, 0]}, r"feature 'grid' \(int64\)"),
        ({"x": b"abc"}, "feature 'x'"),
    ],
)
def test_wrong_values_are_refused(change: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        examples.encode({**VALUES, **change}, FEATURES, [LABEL])


def test_a_missing_value_is_refused() -> None:
    with pytest.raises(UserError, match="'label' has no value"):
        examples.encode(
            {key: VALUES[key] for key in ("x", "token", "grid", "text")}, FEATURES, [LABEL]
        )


VARYING = (
    Feature("ids", "int64", (None,), vocabulary=10),
    Feature("weights", "float32", (None,)),
    Feature("words", "string", (None,)),
)


def test_features_of_varying_length_come_back_ragged() -> None:
    records = [
        {"ids": [9, 0], "weights": [0.5, -1.0], "words": [b"a", b""]},
        {"ids": [], "weights": [], "words": []},
        {"ids": 3, "weights": np.array([2.0]), "words": b"b"},
    ]
    serialized = [examples.encode(record, VARYING) for record in records]
    serialized.append(tf.train.Example().SerializeToString())
    inputs, _ = examples.parse(tf.constant(serialized), VARYING)
    assert inputs["ids"].to_list() == [[9, 0], [], [3], []]
    assert inputs["weights"].to_list() == [[0.5, -1.0], [], [2.0], []]
    assert inputs["words"].to_list() == [[b"a", b""], [], [b"b"], []]
    assert {value.row_splits.dtype for value in inputs.values()} == {tf.int64}
    with pytest.raises(UserError, match=r"'ids': an id in \[3, 10\] lies outside \[0, 10\)"):
        examples.encode({**records[0], "ids": [3, 10]}, VARYING)


def test_only_a_single_dimension_may_vary() -> None:
    for shape in ((None, 2), (2, None), (None, None)):
        with pytest.raises(UserError, match=r"feature 'x': shape .* is neither fixed nor"):
            Feature("x", "float32", shape)


def test_a_record_of_another_schema_does_not_parse() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        examples.parse(batch(), [Feature("x", "float32", (4,))])


DEFAULTS = (
    Feature("age", "float32", default=-1),
    Feature("pair", "int64", (1, 2), 8, default=7),
    Feature("town", "string", (), default="Köln"),
)


def test_a_record_without_a_value_counts_as_the_default() -> None:
    held = {"age": value(0.5), "pair": value(1, 2), "town": value(b"Ulm")}
    lists = {"age": value(dtype="float"), "pair": value(dtype="int"), "town": value(dtype="bytes")}
    records = [example(some) for some in (held, {}, dict.fromkeys(held, UNSET), lists)]
    assert not any(find_problem(record, DEFAULTS) for record in records)
    town = "Köln".encode()

    def check(parsed, of_records):
        expected = {"age": [0.5, -1, -1, -1], "town": [b"Ulm", town, town, town]}
        expected["pair"] = [[[1, 2]], [[7, 7]], [[7, 7]], [[7, 7]]]
        for name, values in expected.items():
            assert parsed[name].numpy().tolist() == values[of_records]

    # A batch in which no record has a value is the one that TensorFlow gives no value's place.
    for of_records in (slice(0, 4), slice(1, 4), slice(0, 0)):
        some = tf.constant(records[of_records], tf.string)
        check(examples.parse(some, DEFAULTS)[0], of_records)
        dataset = tf.data.Dataset.from_tensors(some)
        dataset = dataset.map(lambda some: examples.parse(some, DEFAULTS)[0])
        assert dataset.element_spec["pair"].shape.as_list() == [
            of_records.stop - of_records.start,
            1,
            2,
        ]
        check(next(iter(dataset)), of_records)


@pytest.mark.parametrize(
    "changes", [{"age": value(0.5, 1.0)}, {"pair": value(1)}, {"pair": value(1, 2, 3, 4)}]
)
def test_a_default_hides_no_values_of_another_number(changes: dict) -> None:
    record = example({"age": value(0.5), "pair": value(1, 2), **changes})
    assert re.fullmatch(r"holds \d values in '\w+', not \d", find_problem(record, DEFAULTS))
    with pytest.raises(tf.errors.InvalidArgumentError):
        examples.parse(tf.constant([record, example({})]), DEFAULTS)
