"""Rows with their slots, as their ps hold them."""

import numpy as np
import pytest
import tensorflow as tf

from tfps.store.stored_row import StoredRow

FORMS = {
    "alone": (StoredRow(5, 0, 0), (1, 5, 20)),
    "whole slots": (StoredRow(5, 0, 2), (3, 5, 60)),
    "a slot per row": (StoredRow(5, 1, 0), (1, 6, 24)),
    "bfloat16 alone": (StoredRow(5, 0, 0, "bfloat16"), (1, 5, 10)),
    "bfloat16, whole slots": (StoredRow(5, 0, 2, "bfloat16"), (5, 5, 50)),
    "bfloat16, two slots per row": (StoredRow(5, 2, 0, "bfloat16"), (1, 9, 18)),
}


def drawn(row, rows=40):
    """Rows that their dtype has, and slots of any bits."""
    generator = np.random.default_rng(3)
    values = tf.cast(tf.cast(generator.normal(size=[rows, row.dim]), row.dtype), tf.float32)
    sizes = [1] * row.single + [row.dim] * row.whole
    bits = [generator.integers(0, 2**32, [rows, size], np.uint32) for size in sizes]
    return [values, *(tf.constant(each.view(np.float32)) for each in bits)]


def bits_of(values):
    return [np.asarray(each).view(np.uint32) for each in values]


@pytest.mark.parametrize("form", FORMS)
def test_what_is_stored_is_given_back_bit_by_bit(form):
    row, (lines, width, size) = FORMS[form]
    assert (row.lines, row.width, row.bytes) == (lines, width, size)
    values = drawn(row)
    stored = row.encode(values)
    assert [each.shape for each in stored] == [(40, width)] * lines
    assert {each.dtype.name for each in stored} == {row.dtype}
    for found in (row.decode(stored), row.split(row.decode_flat(tf.stack(stored, 1)))):
        for mine, theirs in zip(bits_of(values), bits_of(found), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_line_has_the_rows_and_slots_of_one_value(form):
    row, _ = FORMS[form]
    values = drawn(row)
    found = row.decode(row.encode(values)[:1])
    for mine, theirs in zip(bits_of(values[: 1 + row.single]), bits_of(found), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("form", FORMS)
def test_it_is_known_again_from_a_signature(form):
    row, _ = FORMS[form]
    slots = [f"slot{k}" for k in range(row.single + row.whole)]
    per_row = {"slots_per_row": row.single} if row.single else {}
    signature = {"slots": slots, **per_row, **row.signature()}
    assert StoredRow.of_signature(5, signature) == row
    assert ("row_dtype" in signature) == (row.dtype != "float32")
