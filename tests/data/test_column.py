"""Columns of all forms: each value is written as it is, or refused with its column and record."""

import datetime
import decimal

import keras
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

import tfps
from tfps.data.column import Column
from tfps.data.example_encoder import RecordEncoder
from tfps.errors import UserError

BIG = 2**24 + 1  # the first whole number that is none of float32
INT, FLOAT, TEXT = "int64", "float32", "string"


def written(values, feature=None):
    """The feature and the values that records hold."""
    column = Column.of(values, "a")
    feature = feature or column.feature()
    records = RecordEncoder([feature]).encode({"a": column.encodable(feature)})
    held = [tf.train.Example.FromString(record).features.feature["a"] for record in records]
    kinds = [getattr(each, each.WhichOneof("kind") or "int64_list").value for each in held]
    return feature.dtype, feature.shape, [list(kind) for kind in kinds]


@pytest.mark.parametrize(
    ("values", "dtype", "shape", "found"),
    [
        (np.array([2**63 - 1, -(2**63)]), INT, (), [[2**63 - 1], [-(2**63)]]),
        (np.array([2**63 - 1], np.uint64), INT, (), [[2**63 - 1]]),
        (np.array([True, 7], object), INT, (), [[1], [7]]),
        (np.array([np.nan, np.inf, -0.0, 1e-300]), FLOAT, (), None),
        (np.array([65504], np.float16), FLOAT, (), [[65504.0]]),
        ([BIG - 1, 0.5], FLOAT, (), [[float(BIG - 1)], [0.5]]),
        ([np.int64(BIG), True], INT, (), [[BIG], [1]]),
        (["a\0", "ü"], TEXT, (), [[b"a\0"], ["ü".encode()]]),
        ([b"a\0", "b"], TEXT, (), [[b"a\0"], [b"b"]]),
        ([("a\0", "b"), ("c", "d")], TEXT, (2,), [[b"a\0", b"b"], [b"c", b"d"]]),
        ([[[1, 2]], [[3, 4]]], INT, (1, 2), [[1, 2], [3, 4]]),
        ([np.ones((2, 2)), np.zeros((2, 2))], FLOAT, (2, 2), [[1] * 4, [0] * 4]),
        ([[], [1.5]], FLOAT, (None,), [[], [1.5]]),
        ([np.array([1]), np.array([])], INT, (None,), [[1], []]),
        ([np.array([2**53 + 1]), np.array([7], np.uint8)], INT, (1,), [[2**53 + 1], [7]]),
        ([tf.constant(1), tf.constant(2)], INT, (), [[1], [2]]),
        (tf.ragged.constant([[b"x"], []]), TEXT, (None,), [[b"x"], []]),
        (tf.ragged.constant([[], []], tf.float32), FLOAT, (None,), [[], []]),
        (tf.ragged.constant([[], []], tf.string), TEXT, (None,), [[], []]),
        (np.ma.array([1, 2], mask=[0, 0]), INT, (), [[1], [2]]),
        (pd.Series([1, 2], dtype="Int64", index=[5, 3]), INT, (), [[1], [2]]),
        (pd.Series([True, False], dtype="boolean"), INT, (), [[1], [0]]),
        (pd.Series(["x", "y"], dtype="category"), TEXT, (), [[b"x"], [b"y"]]),
        (pd.Series([10, 20], dtype="category"), INT, (), [[10], [20]]),
        (pd.Series(pd.arrays.SparseArray([0, 0, 3])), INT, (), [[0], [0], [3]]),
        (pd.Series([[1, 2], [3, 4]]), INT, (None,), [[1, 2], [3, 4]]),
        (pd.Series([[2**53 + 1], []], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
         INT, (None,), [[2**53 + 1], []]),
        (pd.DataFrame({"x": [2**53 + 1], "y": [7]}), INT, (2,), [[2**53 + 1, 7]]),
        (pd.DataFrame({"x": [7], "y": [0.5]}), FLOAT, (2,), [[7.0, 0.5]]),
        (pa.array([2**53 + 1]), INT, (), [[2**53 + 1]]),
        (pa.chunked_array([[[1, 2]], [[]]]), INT, (None,), [[1, 2], []]),
        (pa.array(["x", "x"]).dictionary_encode(), TEXT, (), [[b"x"], [b"x"]]),
    ],
)  # fmt: skip
def test_values_are_written_as_they_are(values, dtype, shape, found):
    *feature, held = written(values)
    assert feature == [dtype, shape]
    if found is None:
        np.testing.assert_array_equal(np.ravel(held), values.astype(np.float32))
        assert np.signbit(held[2])
    else:
        assert held == found


MISSING = "is missing"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([2**63, 1], "record 0: 9223372036854775808 does not fit int64"),
        (np.array([1, 2**63], np.uint64), "record 1: 9223372036854775808 does not fit int64"),
        (np.array([1.0, 1e300]), r"record 1: 1e\+300 does not fit float32"),
        (np.array([[0.5, BIG]]), r"record 0 at \[1\]: 16777217 is a whole number that float32"),
        ([0.5, BIG], "record 1: 16777217 is a whole number that float32 does not hold"),
        ([0.5, 2**53 + 1], "record 1: 9007199254740993 is a whole number that float32"),
        ([0.5, 10**400], "record 1: 1000.* is a whole number that float32"),
        (np.ma.array([1, 2], mask=[0, 1]), "record 1: the value is masked"),
        ([[1, 2], np.ma.array([1, 2], mask=[0, 1])], r"record 1 at \[1\]: the value is masked"),
        ([1, np.ma.masked], f"record 1: the value {MISSING}"),
        ([1, None], rf"record 1: the value {MISSING} \(None\)"),
        ([[1], [2, None]], rf"record 1 at \[1\]: the value {MISSING} \(None\)"),
        (["x", float("nan")], rf"record 1: the value {MISSING} \(nan\)"),
        ([float("nan"), "x"], rf"record 0: the value {MISSING} \(nan\)"),
        (pd.Series([BIG, pd.NA], dtype="Int64"), f"record 1: the value {MISSING}"),
        (pd.Series([True, pd.NA], dtype="boolean"), f"record 1: the value {MISSING}"),
        (pd.Series([1.5, pd.NA], dtype="Float64"), f"record 1: the value {MISSING}"),
        (pd.Series(["x", None]), f"record 1: the value {MISSING}"),
        (pd.Series(["x", None], dtype="category"), f"record 1: the value {MISSING}"),
        (pd.DataFrame({"x": [BIG], "y": [0.5]}), r"record 0 at \[0\]: 16777217 is a whole number"),
        (pd.DataFrame({"x": [1, None], "y": [1, 2]}, dtype="Int64"),
         rf"record 1 at \[0\]: the value {MISSING}"),
        (pd.Series([1, pd.NA], dtype=object), f"record 1: the value {MISSING}"),
        (pd.Series([[1], [2, None]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
         rf"record 1 at \[1\]: the value {MISSING}"),
        (pa.array([BIG, None]), f"record 1: the value {MISSING}"),
        (pa.array([[BIG], [None]]), rf"record 1 at \[0\]: the value {MISSING}"),
        ([1, "x"], "record 1: 'x' is text, but 1 before it is a number"),
        ([["x"], [1]], r"record 1 at \[0\]: 1 is a number, but 'x' before it is text"),
        (["x", "\ud800"], r"record 1: '\\ud800' has half of a surrogate pair"),
        ([decimal.Decimal("1.5")], r"record 0: Decimal\('1.5'\) is of type Decimal"),
        ([datetime.date(2020, 1, 1)], "record 0: .* is of type date"),
        ([{"k": 1}], "record 0: .* is of type dict"),
        ([np.timedelta64(1, "s")], "record 0: .* is of type timedelta64"),
        (np.array(["2026"], "M8[ns]"), "record 0: 2026.* is of dtype datetime64"),
        ([np.array(["2026"], "M8[ns]")], r"record 0 at \[0\]: 2026.* is of dtype datetime64"),
        (pd.Series(pd.date_range("2026", periods=2, tz="UTC")), "record 0: Timestamp.* of type"),
        (np.array([1j]), r"record 0: 1j is of dtype complex128"),
        ([1j], r"record 0: 1j is of type complex"),
        (tf.constant([1.5], tf.bfloat16), "record 0: 1.5 is of dtype bfloat16"),
        (tf.sparse.from_dense([[0, 1]]), "a SparseTensor is no column"),
        ({1, 2}, "an object of type set is no array and no list"),
        (5, "an object of type int is no array"),
        (np.array(5), "5 is one value, not one per record"),
        ([[], []], r"record 0: the first records hold empty lists, .*tfps.Feature\('a', dtype"),
        (np.ones((2, 0)), r"record 0: no value: the shape of a record is \(0,\)"),
        ([[1, 2], None], "record 1: None is no list, but other records hold lists"),
        ([[[1, 2], [3]], [[4], [5]]], r"record 0 at \[1\]: its lists of lists differ in length"),
        ([[[1, 2]], [[3, 4], [5, 6]]], "record 1: a list of lists, not as long as that of"),
        ([np.ones((1, 2)), np.ones((2, 2))], "record 1: a list of lists, not as long as that of r"),
        (tf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]]], ragged_rank=1), "record 0: a list of l"),
    ],
)  # fmt: skip
def test_what_would_be_changed_is_refused(values, message):
    with pytest.raises(UserError, match=rf"write_dataset\(\): column 'a'[:,] {message}"):
        written(values)


@pytest.mark.parametrize(
    ("values", "feature", "message"),
    [
        ([1.0, 1.5], (INT, ()), "record 1: 1.5 is a float, but the feature's dtype is int64"),
        ([1.0, float("nan")], (INT, ()), "record 1: nan is a float, .* int64"),
        ([1.0], (INT, ()), "record 0: 1.0 is a float, .* int64"),
        ([1, BIG], (FLOAT, ()), "record 1: 16777217 is a whole number that float32 does not hold"),
        ([-(2**63), -(2**63) + 1], (FLOAT, ()), "record 1: -9223372036854775807 is a whole numb"),
        (["1"], (INT, ()), "record 0: b'1' is text, but the feature's dtype is int64"),
        ([1], (TEXT, ()), "record 0: 1 is a number, but the feature's dtype is string"),
        ([[1, 2], [3]], (INT, (2,)), r"record 1: 1 values, but the feature's shape \(2,\) holds 2"),
        ([1], (INT, (None,)), r"record 0: its shape is \(\), but that of the feature is \(None,\)"),
        ([[-1], [3, 10]], (INT, (None,), 10), r"record 0 at \[0\]: -1 lies outside the vocabulary"),
    ],
)
def test_what_is_not_what_the_feature_says_is_refused(values, feature, message):
    with pytest.raises(UserError, match=message):
        written(values, tfps.Feature("a", *feature))


def test_lists_take_the_form_that_the_feature_says():
    ragged, fixed = tfps.Feature("a", INT, (None,)), tfps.Feature("a", FLOAT, (2, 1))
    assert written([[], []], ragged)[2] == [[], []]
    assert written(np.array([[1, 2], [3, 4]]), ragged)[2] == [[1, 2], [3, 4]]
    assert written(pd.Series([[1, 2], [3, 4]]), fixed)[2] == [[1.0, 2.0], [3.0, 4.0]]
    assert written([[], []], tfps.Feature("a", TEXT, (None,)))[2] == [[], []]


def test_parts_know_their_records():
    column = Column.of([[1], [2, 3], [4]], "a", before=10).part(1, 3)
    assert (column.records, column.before) == (2, 11)
    with pytest.raises(UserError, match=r"record 12 at \[0\]: 4 lies outside the vocabulary"):
        column.encodable(tfps.Feature("a", INT, (None,), 4))


FRAME = pd.DataFrame(np.ones((2, 2)), columns=["a", "a"])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (FRAME, None, "x has two columns of the name 'a'"),
        ({1: [1], "1": [2]}, None, "x has two columns of the name '1'"),
        ({"label": [1]}, [0], "x has a column 'label', and the label or weight has that name too"),
        ({"b": [1]}, {"b": [0]}, "x has a column 'b', and the label or weight"),
        ({"sample_weight": [1]}, [0], "x has a column 'sample_weight', and the label or weight"),
        ({"b": [1]}, {"sample_weight": [0]}, "two labels, or a label and the weight, have the na"),
        (pd.DataFrame({("a", "b"): [1]}), None, r"the name \('a', 'b'\), which is no text"),
        ({None: [1]}, None, "the name None, which is no text"),
        ({"": [1]}, None, "the name '', which is no text"),
        (pa.table([[1], [2]], ["a", "a"]), None, "x has two columns of the name 'a'"),
    ],
)
def test_names_that_would_hide_a_column_are_refused(tmp_path, x, y, message):
    weight = [1.0] if y is not None else None
    with pytest.raises(UserError, match=message):
        tfps.write_dataset(str(tmp_path / "new"), x, y, weight)
    assert not (tmp_path / "new").exists()


def test_an_arrow_table_is_its_columns(tmp_path):
    dataset = tfps.write_dataset(str(tmp_path), pa.table({"id": [1, 2], "tags": [["x"], []]}))
    assert [each["name"] for each in dataset.features] == ["id", "tags"]


class Lazy:
    """A frame as Spark has it: with names of columns alone."""

    columns = ("a",)


class OfPolars(Lazy):
    """A frame as polars has it, which is not installed here."""

    def to_dict(self):
        return {"a": pd.Series([1, 2])}


def test_a_frame_that_holds_no_values_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"the values of a Lazy are not in memory; .*toPandas\(\)"):
        tfps.write_dataset(str(tmp_path), Lazy())
    assert tfps.write_dataset(str(tmp_path), OfPolars()).records == 2


class Weeks(keras.utils.PyDataset):
    """Batches of which there is no end."""

    num_batches = None

    def __getitem__(self, index):
        return np.ones(2)


def test_an_endless_py_dataset_is_refused(tmp_path):
    with pytest.raises(UserError, match="the batches never end"):
        tfps.write_dataset(str(tmp_path), Weeks())
