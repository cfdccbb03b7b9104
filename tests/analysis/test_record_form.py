"""Records written by hand, and the names of what they hold."""

import numpy as np
import pytest

from configs.census import Census
from tests.prediction_model import CONFIG, FEATURES, LABEL, export
from tfps.analysis.record_form import RecordForm
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.export.loaded_model import ExportedModel

CENSUS = RecordForm(Census().features(), Census().labels(), Census().rows())
ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0,"
    " 40, United-States"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return ExportedModel.load(str(export(tmp_path_factory.mktemp("model") / "export")))


def test_rows_of_text_are_read_as_the_config_says_with_labels_or_without():
    typed = CENSUS.typed([ROW, f"{ROW}, >50K"])
    assert typed.keys() == {feature.name for feature in CENSUS.features}
    for values in typed.values():
        assert values[0] == values[1]
    assert typed["age"][0] == pytest.approx((39 - 38.6) / 13.6)
    assert typed["occupation"].tolist() == [0, 0]
    assert CENSUS.cells(ROW)["capital_gain"] == "2174"
    assert CENSUS.cells(f"{ROW}, >50K")["native_country"] == "United-States"


def test_a_record_may_be_a_dict(model):
    form = RecordForm.of(model)
    typed = form.typed([{"age": 2.5, "ids": [3, 9], "town": "Köln"}])
    assert typed["town"].tolist() == ["Köln".encode()]
    assert model.predict(typed)["predictions"] == pytest.approx([2.5 / 3 + 12 + 500])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no record is given"),
        ([{"age": 1.0, "ids": [1, 2]}], "record 1: feature 'town' has no value"),
        (
            [{"age": 1.0, "ids": [1, 2], "town": "Ulm"}, {"age": 1, "ids": [1, 10], "town": "Ulm"}],
            r"record 2: feature 'ids': an id in \[1, 10\] lies outside",
        ),
        (["1, 2"], "record 1 is a row of text, which only a config with rows"),
    ],
)
def test_a_record_that_does_not_fit_is_named(model, rows, message):
    with pytest.raises(UserError, match=message):
        RecordForm.of(model).typed(rows)


def test_a_bad_cell_is_named():
    with pytest.raises(UserError, match=r"record 2 line 1 column age: .old. is not a number"):
        CENSUS.typed([ROW, ROW.replace("39", "old")])


def test_the_config_must_be_that_of_the_model(model, tmp_path):
    path = tmp_path / "towns.py"
    path.write_text(CONFIG)
    form = RecordForm.of(model, str(path), ["task.delimiter=;"])
    assert form.row_format.delimiter == ";"
    assert [part.name for part in form.parts] == ["age", "first", "second", "town"]
    with pytest.raises(UserError, match=r"the config configs/census\.py holds other records"):
        RecordForm.of(model, "configs/census.py")


def test_values_are_named_by_tokens_ids_texts_and_ranges():
    typed = CENSUS.typed([ROW, ROW.replace("Bachelors", "Masters")])
    assert CENSUS.names(typed, "education").tolist() == ["Bachelors", "Masters"]
    assert CENSUS.names(typed, "occupation").tolist() == ["other", "other"]
    form = RecordForm((*FEATURES, Feature("tags", "int64", (None,))), (LABEL,))
    records = form.typed(
        [
            {"age": float(k), "ids": [k, 9], "town": "Ulm" * k, "tags": list(range(k))}
            for k in range(10)
        ]
    )
    assert form.names(records, "ids[0]").tolist() == list(map(str, range(10)))
    assert form.names(records, "town")[2] == "UlmUlm"
    assert form.names(records, "tags")[[0, 2, 5]].tolist() == ["", "0, 1", "0, 1, 2…"]
    ranges, counts = np.unique(form.names(records, "age"), return_counts=True)
    assert ranges.tolist() == ["0 to 2.25", "2.25 to 4.5", "4.5 to 6.75", "6.75 to 9"]
    assert counts.tolist() == [3, 2, 2, 3]
    with pytest.raises(UserError, match=r"no part 'ids'; they have age, ids\[0\]"):
        form.names(records, "ids")


def test_the_rows_of_a_table_have_the_tokens_of_its_feature():
    assert CENSUS.rows(3, "sex", {}, 10)[1] == ["other", "Female", "Male"]
    assert CENSUS.rows(3, "", {}, 10)[1] == ["0", "1", "2"]
    assert CENSUS.rows(4, "sex", {}, 10)[1] == ["0", "1", "2", "3"]  # it is no table of these
    ids, names = CENSUS.rows(16, "age", {}, 2)
    assert (ids.tolist(), names) == ([0, 1], ["0", "1"])


def test_rows_without_a_vocabulary_are_those_that_records_have_most_often():
    features = [("price", "float32"), ("seller", "string"), ("seen", "int64", (None,))]
    form = RecordForm(tuple(Feature(*each) for each in features), ())
    records = form.typed(
        [
            {"price": 1.0, "seller": "Ulm", "seen": [7, 9]},
            {"price": 2.0, "seller": "Köln", "seen": [9]},
            {"price": 3.0, "seller": "Köln", "seen": []},
        ]
    )
    ids, names = form.rows(None, "", records, 10)
    assert (ids.tolist(), names) == (["Köln".encode(), b"Ulm"], ["Köln", "Ulm"])
    ids, names = form.rows(None, "seen", records, 1)
    assert (ids.tolist(), names) == ([9], ["9"])
    with pytest.raises(UserError, match="part 'price' has none"):
        form.rows(None, "price", records, 10)
