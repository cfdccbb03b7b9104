"""Parts of records, and records that have another's."""

import numpy as np
import tensorflow as tf

from configs.census import Census
from configs.criteo import Criteo
from tfps.analysis.record_form import Part, Place, RecordForm, exchanged, take
from tfps.data.feature import Feature

FEATURES = (
    Feature("age", "float32"),
    Feature("ids", "int64", (2,), 10),
    Feature("picture", "float32", (9, 9)),
    Feature("tags", "int64", (None,), 30),
)
PARTS = RecordForm(FEATURES, ()).parts
RECORDS = {
    "age": np.float32([20, 30, 40]),
    "ids": np.array([[1, 2], [3, 4], [5, 6]]),
    "picture": np.zeros([3, 9, 9], "f4"),
    "tags": tf.ragged.constant([[1, 2], [], [3]], tf.int64, row_splits_dtype=tf.int64),
}


def test_without_columns_each_feature_is_a_part_and_each_value_of_a_short_vector():
    names = [part.name for part in PARTS]
    assert names == ["age", "ids[0]", "ids[1]", "picture", "tags"]
    assert PARTS[2] == Part("ids[1]", (Place("ids", 1),))
    assert PARTS[3] == Part("picture", (Place("picture"),))


def test_what_is_made_of_one_column_is_one_part():
    parts = {
        part.name: part.places
        for part in RecordForm(Census().features(), (), Census().rows()).parts
    }
    assert parts["age"] == (Place("age"), Place("age_bucket"))
    assert parts["occupation"] == (Place("occupation"),)
    assert len(parts) == 14  # the columns but the label's
    assert sum(map(len, parts.values())) == len(Census().features())


def test_a_vector_of_several_columns_has_their_names():
    parts = {
        part.name: part.places
        for part in RecordForm(Criteo().features(), (), Criteo().rows()).parts
    }
    assert parts["integer_3"] == (Place("integers", 2),)
    assert parts["categorical_26"] == (Place("categoricals", 25),)
    assert len(parts) == 39


def test_records_are_taken_in_any_order_and_more_than_once():
    found = take(RECORDS, [2, 0, 2])
    assert found["age"].tolist() == [40, 20, 40]
    assert found["tags"].to_list() == [[3], [1, 2], [3]]


def test_only_the_part_is_exchanged_and_the_records_stay_as_they_are():
    before = {name: np.copy(RECORDS[name]) for name in ("age", "ids", "picture")}
    others = take(RECORDS, [1, 2, 0])
    changed = {part.name: exchanged(RECORDS, part, others) for part in PARTS}
    assert changed["age"]["age"].tolist() == [30, 40, 20]
    assert changed["ids[1]"]["ids"].tolist() == [[1, 4], [3, 6], [5, 2]]
    assert changed["tags"]["tags"].to_list() == [[], [3], [1, 2]]
    for part, names in {"age": {"age"}, "ids[1]": {"ids"}, "tags": {"tags"}}.items():
        same = {name for name in RECORDS if changed[part][name] is RECORDS[name]}
        assert same == set(RECORDS) - names
    for name, values in before.items():
        np.testing.assert_array_equal(RECORDS[name], values)
