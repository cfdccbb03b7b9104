"""Columns as inputs of a model: what each gives, and that a saved model gives the same."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfps import columns
from tfps.errors import UserError


def model_of(*some: columns.Column) -> keras.Model:
    inputs = {each.name: each.input() for each in some}
    return keras.Model(inputs, {each.name: each(inputs[each.name]) for each in some})


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_number_is_normalized() -> None:
    some = columns.Number("x", 3.0, 4.0), columns.Number("y", 1.0, 4.0, log=True)
    given = {"x": tf.constant([3.0, 7.0]), "y": tf.constant([np.e - 1, -(np.e**3) + 1])}
    found = model_of(*some)(given)
    np.testing.assert_allclose(found["x"], [[0], [2]], atol=1e-6)
    np.testing.assert_allclose(found["y"], [[0], [-2]], atol=1e-6)


def test_a_missing_number_is_masked() -> None:
    found = model_of(columns.Number("x", 3.0, 4.0, default=-1.0))({"x": tf.constant([7.0, -1.0])})
    np.testing.assert_allclose(found["x"], [[2, 1], [0, 0]], atol=1e-6)
    assert columns.Number("x", default=-1.0).feature.default == -1.0


def test_categories_share_a_row_if_no_line_lists_them(tmp_path: Path) -> None:
    words = write(tmp_path / "words.txt", "Köln", "Ulm")
    ids = write(tmp_path / "ids.txt", "3", "5")
    some = (
        columns.Category("town", words),
        columns.Category("code", ids, dtype="int64"),
        columns.Category("tags", words, is_list=True),
        columns.Text("title", words, dim=3),
    )
    given: dict[str, Any] = {
        "town": tf.constant(["Köln", "Bonn", "", "Köln"]),
        "code": tf.constant([3, 4, 6, 3], tf.int64),
        "tags": tf.ragged.constant([["Köln"], ["Bonn"], [], ["Köln", "Bonn"]]),
        "title": tf.constant(["ulm, Ulm!", "x", "", "ulm x"]),
    }
    found = {name: value.numpy() for name, value in model_of(*some)(given).items()}
    for name in ("town", "code"):
        np.testing.assert_array_equal(found[name][0], found[name][3])
        np.testing.assert_array_equal(found[name][1], found[name][2])
        assert (found[name][0] != found[name][1]).all()
    for name in ("tags", "title"):
        np.testing.assert_array_equal(found[name][2], 0)
        np.testing.assert_allclose(found[name][3], (found[name][0] + found[name][1]) / 2, 1e-5)
    assert found["title"].shape == (4, 3)


def test_a_saved_model_needs_no_vocabulary_and_any_name_will_do(tmp_path: Path) -> None:
    words = write(tmp_path / "words.txt", "a", "b")
    some = columns.Category("Größe in m²?", words), columns.Date("first seen (day)")
    given = {
        "Größe in m²?": tf.constant(["a", "c"]),
        "first seen (day)": tf.constant(["2024-05-06", "never"]),
    }
    model = model_of(*some)
    model.save(tmp_path / "model.keras")
    words.unlink()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for name, value in model(given).items():
        np.testing.assert_array_equal(loaded(given)[name], value)


def test_a_vocabulary_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"column 'town': there is no vocabulary .*gone\.txt; name"):
        model_of(columns.Category("town", tmp_path / "gone.txt"))
