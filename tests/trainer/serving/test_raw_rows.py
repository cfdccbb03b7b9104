"""`trainer.serve --config`: a raw row has the answer that `trainer.predict --config` gives it."""

import csv
import re

import pytest
from selenium.webdriver.common.by import By

from tests.browser import in_browser
from tests.loaded import client
from tests.trainer.serving import test_form as form
from tests.trainer.serving.server import Asked, serving
from tests.training_fixtures import Trainer
from tfps.experiment import overrides
from trainer.serving.raw_rows import RawRows

CONFIG = """
import dataclasses

import keras
import tfps


def price(text):
    return float(text.removesuffix("€").replace(".", "").replace(",", "."))


def month(text):
    return int(text.split("-")[1])


@dataclasses.dataclass(frozen=True)
class Listings(tfps.Task):
    def features(self):
        return (
            tfps.Feature("price", "float32"),
            tfps.Feature("month", "int64", vocabulary=13),
            tfps.Feature("tags", "int64", (None,), 50),
            tfps.Feature("size", "float32", (2,)),
            tfps.Feature("rooms", "float32", default=1.0),
        )

    def label(self):
        return tfps.Feature("sold", "float32")

    def rows(self):
        return tfps.RowFormat(
            fields={
                "price": tfps.Field(("price",), price),
                "month": tfps.Field(("date",), month),
                "tags": tfps.Field(("tags",), int, ";"),
            }
        )

    def build_model(self):
        inputs = {
            "price": keras.Input((), name="price"),
            "month": keras.Input((), name="month", dtype="int64"),
            "tags": keras.Input((None,), name="tags", dtype="int64", ragged=True),
            "size": keras.Input((2,), name="size"),
            "rooms": keras.Input((), name="rooms"),
        }
        numbers = [keras.layers.Reshape((1,))(inputs[name]) for name in ("price", "rooms")]
        parts = [
            *numbers,
            inputs["size"],
            keras.layers.Embedding(13, 2)(inputs["month"]),
            tfps.Embedding(50, 2, "sum")(inputs["tags"]),
        ]
        outputs = keras.layers.Dense(1, "sigmoid")(keras.layers.Concatenate()(parts))
        return keras.Model(inputs, outputs)

    def loss(self):
        return "binary_crossentropy"

    def optimizer(self):
        return "sgd"


def get_config():
    return tfps.Experiment("listings", Listings())
"""
CELLS = {"date": "2026-11-27", "price": "1,50€", "tags": "7;41", "size_0": "2", "size_1": "0.5"}
ROWS = [
    {**CELLS, "rooms": "3", "seller": "Ä, B"},
    {**CELLS, "price": "0,25", "tags": "", "rooms": "", "seller": ""},
]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The config, and the directory of a job whose export has its model."""
    directory = tmp_path_factory.mktemp("job")
    (directory / "listings.py").write_text(CONFIG)
    task = overrides.load(str(directory / "listings.py")).task
    Trainer(None, task=task, parts=1).export(directory / "export" / "1")
    return directory


@pytest.fixture(scope="module")
def asked(job):
    """The application with the config's rows."""
    task = overrides.load(str(job / "listings.py")).task
    return Asked(job, rows=RawRows.of(task))


def numbers(answer):
    return [number for [number] in answer["predictions"]]


def predicted(job, rows):
    """What `trainer.predict` writes of a file with these rows."""
    with (job / "rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    flags = [f"--model={job}/export", f"--data={job}/rows.csv", f"--output={job}/out.csv"]
    done = client.run("trainer.predict", f"--config={job}/listings.py", *flags, "--overwrite")
    assert done.returncode == 0, done.stderr
    with (job / "out.csv").open() as file:
        return [float(row["prediction"]) for row in csv.DictReader(file)]


def test_a_server_answers_as_trainer_predict(job):
    expected = predicted(job, ROWS)
    assert abs(expected[0] - expected[1]) > 1e-3
    with serving(job, f"--config={job}/listings.py") as server:
        server.wait_for("Send raw rows, with the columns price, date, tags, size_0")
        status, answer = server.ask({"instances": ROWS})
        assert status == 200, answer
        assert numbers(answer) == pytest.approx(expected, abs=1e-6)


def test_cells_may_be_of_any_type_that_parquet_has(job, asked):
    typed = {"size_0": 2, "size_1": 0.5, "rooms": 3.0, "tags": [7, "41"]}
    _, answer = asked.ask({"instances": [{**ROWS[0], **typed}, {**ROWS[1], "rooms": None}]})
    assert numbers(answer) == pytest.approx(predicted(job, ROWS), abs=1e-6)


def test_a_vector_may_be_one_column(job, asked):
    row = {name: cell for name, cell in ROWS[0].items() if not name.startswith("size")}
    for cell in ("2|0.5", [2, 0.5]):
        _, answer = asked.ask({"instances": [{**row, "size": cell}]})
        assert answer["predictions"][0] == pytest.approx(predicted(job, ROWS)[:1], abs=1e-6)


def test_the_model_s_own_features_are_asked_by_their_signature(asked):
    features = {"price": 1.5, "month": 11, "tags": [7, 41], "size": [2.0, 0.5], "rooms": 3.0}
    body = {"signature_name": "serving_default", "instances": [features]}
    assert asked.ask(body) == asked.ask({"instances": ROWS[:1]})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"price": "cheap"}, r"instances\[0\] column price: 'cheap' could not convert"),
        ({"price": None}, r"instances\[0\] column price: the cell is empty"),
        ({"tags": "99"}, r"instances\[0\]: feature 'tags': an id in \[99\] lies outside"),
        ({"price": {"a": 1}}, r"instances\[0\]: column 'price' is an object, not a cell"),
        ({"price": [1]}, r"instances\[0\]: column 'price' is a list of one element, not a cell"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_with_its_column(asked, change, said):
    status, answer = asked.ask({"instances": [{**ROWS[0], **change}]})
    assert status == 400
    assert re.search(said, answer["error"]), answer


def test_rows_that_lack_a_column_are_refused(asked):
    row = {name: cell for name, cell in ROWS[0].items() if name != "date"}
    assert "no column 'date'" in asked.ask({"instances": [row]})[1]["error"]
    said = asked.ask({"instances": [ROWS[0], row]})[1]["error"]
    assert said == "instances[1]: column 'date' is missing"
    for body in ({"inputs": ROWS[0]}, {"instances": []}, {"instances": ["a"]}):
        status, answer = asked.ask(body)
        assert (status, "instances" in answer["error"]) == (400, True)


def test_a_config_without_rows_is_refused(job, tmp_path):
    text = CONFIG.replace("def rows(self)", "def unused(self)")
    (tmp_path / "plain.py").write_text(text)
    done = client.run(
        "trainer.serve", f"--model={job}", f"--config={tmp_path}/plain.py", "--port=0"
    )
    assert done.returncode == 2
    assert "has no rows(), so the model takes raw values" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@in_browser
def test_the_form_asks_for_columns(job):
    with serving(job, f"--config={job}/listings.py") as server, form.browser() as driver:
        driver.get(server.url)
        for name, cell in ROWS[0].items():
            if name != "seller":
                form.fill(driver, name, cell)
        assert form.predict(driver) == pytest.approx(predicted(job, ROWS)[:1], abs=1e-6)
        form.fill(driver, "price", "cheap")
        assert "column price: 'cheap'" in form.predict(driver)
        [wrong] = driver.find_elements(By.CSS_SELECTOR, ".field.wrong")
        assert wrong.get_attribute("data-name") == "price"
