"""Columns drawn at random: each value comes back from the records, or its column is refused."""

import itertools
import math

import hypothesis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import strategies as st

import tfps
from tfps.errors import UserError

TEXTS = st.text(st.characters(codec=None), max_size=4)
CELLS = {
    "bool": st.booleans(),
    "small": st.integers(-3, 300),
    "integer": st.integers(-(2**64), 2**64) | st.sampled_from([2**24 + 1, 2**53 + 1, 2**63]),
    "float": st.floats() | st.floats(width=32) | st.integers(-(2**60), 2**60).map(float),
    "text": TEXTS,
    "bytes": st.binary(max_size=4),
    "missing": st.sampled_from([None, float("nan"), pd.NA, pd.NaT, np.ma.masked]),
    "odd": st.sampled_from([1j, np.datetime64("2026"), np.timedelta64(1, "s"), {}, "\ud800"]),
}


def lists(cells):
    return st.lists(cells, max_size=3)


@st.composite
def columns(draw):
    """Cells of a column of three records, mostly of one kind."""
    first = draw(st.sampled_from(["bool", "small", "integer", "float", "text", "bytes"]))
    others = draw(st.lists(st.sampled_from(list(CELLS)), max_size=1))
    cells = st.one_of(*(CELLS[kind] for kind in [first, first, *others]))
    width = draw(st.integers(1, 2))
    form = draw(
        st.sampled_from(
            [cells, cells, lists(cells), st.lists(cells, min_size=width, max_size=width)]
        )
    )
    odd = draw(st.sampled_from([form, form, form, cells | lists(cells) | lists(lists(cells))]))
    return draw(st.tuples(form, form, odd).map(list))


def object_array(cells):
    array = np.empty(len(cells), object)
    array[:] = cells
    return array


FORMS = {
    "list": list,
    "rows": lambda cells: [np.array(c) if isinstance(c, list) else c for c in cells],
    "objects": object_array,
    "Series": lambda cells: pd.Series(object_array(cells)),
    "nullable": lambda cells: pd.Series(pd.array(cells)),
    "category": lambda cells: pd.Series(cells, dtype="category"),
    "arrow": pa.array,
    "pandas of arrow": lambda cells: pd.Series(cells, dtype=pd.ArrowDtype(pa.array(cells).type)),
    "array": np.array,
    "float16": lambda cells: np.array(cells, np.float16),
    "uint64": lambda cells: np.array(cells, np.uint64),
    "masked": lambda cells: np.ma.array(cells, mask=[0, 0, 1]),
    "ragged": tf.ragged.constant,
}


def given(form, cells):
    """A column in a form that exists for its cells, and what it holds in that form."""
    if form == "ragged" and any(isinstance(x, np.timedelta64 | np.datetime64) for x in flat(cells)):
        hypothesis.reject()  # tf.constant ends the process on them
    try:
        with np.errstate(all="ignore"):
            column = FORMS[form](cells)
    except Exception:
        hypothesis.reject()
    if isinstance(column, np.ma.MaskedArray):
        return column, None
    if isinstance(column, tf.RaggedTensor):
        return column, column.to_list()
    to_list = getattr(column, "to_pylist", None) or getattr(column, "tolist", None)
    try:
        return column, to_list() if to_list else column
    except UnicodeDecodeError:
        return column, None


def flat(cell):
    """A record's values."""
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if isinstance(cell, list | tuple):
        return list(itertools.chain.from_iterable(map(flat, cell)))
    return [cell]


def is_held(value, held, dtype):
    """Whether a record holds the value that was given."""
    if dtype == "string":
        return (value.encode() if isinstance(value, str) else value) == held
    if isinstance(value, str | bytes) or value is None or value is pd.NA:
        return False
    if dtype == "int64":
        return int(value) == held and not isinstance(value, float)
    if math.isnan(value) or math.isinf(value) or value != int(value):
        with np.errstate(over="ignore"):
            nearest = float(np.float32(value))
        return np.array_equal(nearest, held, equal_nan=True) and (
            math.isinf(held) == math.isinf(value)
        )
    return int(value) == held and math.copysign(1, held) == math.copysign(1, value)


def check(directory, form, cells):
    column, expected = given(form, cells)
    x = {"ok": [1, 2, 3], "a": column}
    try:
        dataset = tfps.write_dataset(str(directory), x, overwrite=True)
    except UserError as error:
        message = str(error)
        assert "column 'a', record " in message, message
        return
    assert expected is not None
    dtype = next(each["dtype"] for each in dataset.features if each["name"] == "a")
    [path] = [dataset.path_of(shard) for shard in dataset.shards]
    records = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    for cell, record in zip(expected, records, strict=True):
        held = tf.train.Example.FromString(record).features.feature["a"]
        kind = held.WhichOneof("kind")
        found = list(getattr(held, kind).value) if kind else []
        given_values = flat(cell)
        assert len(given_values) == len(found), (cell, found)
        assert all(map(is_held, given_values, found, [dtype] * len(found))), (cell, found)


@hypothesis.settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(form=st.sampled_from(list(FORMS)), cells=columns())
def test_values_come_back_or_are_refused(tmp_path_factory, form, cells):
    check(tmp_path_factory.getbasetemp() / "drawn", form, cells)


@pytest.mark.slow
@pytest.mark.timeout(900)
@hypothesis.settings(
    max_examples=1_500,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
@hypothesis.given(form=st.sampled_from(list(FORMS)), cells=columns())
def test_many_values_come_back_or_are_refused(tmp_path_factory, form, cells):
    check(tmp_path_factory.getbasetemp() / "drawn", form, cells)


def test_text_of_arrow_that_is_no_utf_8_is_refused_with_its_record(tmp_path):
    column = pa.array([["a"], [], ["", b"\x80"]])
    for given in (column, pd.Series(column, [7, 8, 9], pd.ArrowDtype(column.type))):
        with pytest.raises(UserError, match=r"column 'a', record 2.* is no UTF-8 .*binary"):
            tfps.write_dataset(str(tmp_path / "data"), {"a": given})


def test_values_of_arrow_without_fields_are_refused(tmp_path):
    column = pa.array([{}, {}])
    with pytest.raises(UserError, match=r"column 'a', record 0"):
        tfps.write_dataset(str(tmp_path / "data"), {"a": column})
