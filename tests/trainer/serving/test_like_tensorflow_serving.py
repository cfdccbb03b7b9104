"""Answers are those that TensorFlow Serving is documented, tested and recorded to give.

Its own words are in its repository: the page g3doc/api_rest.md, and the tests of json_tensor and
http_rest_api_handler.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.serving.served_models import Hand
from tests.trainer.serving.server import serving
from tfps.data.feature import Feature
from trainer.serving import answer_text

# The page's model with three named inputs, of which it gives the sum of all numbers.
NAMED = (
    Feature("tag", "string"),
    Feature("signal", "float32", (5,)),
    Feature("sensor", "float32", (2, 2)),
)
ROWS = [
    {"tag": "foo", "signal": [1, 2, 3, 4, 5], "sensor": [[1, 2], [3, 4]]},
    {"tag": "bar", "signal": [3, 4, 1, 2, 5], "sensor": [[4, 5], [6, 8]]},
]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}


def sums(values):
    total = tf.reduce_sum(values["signal"], 1) + tf.reduce_sum(values["sensor"], [1, 2])
    return {"predictions": total + 100 * tf.cast(tf.strings.length(values["tag"]), tf.float32)}


@pytest.fixture(scope="module")
def half_plus_two(tmp_path_factory):
    features = (Feature("x", "float32"),)
    hand = Hand(features, lambda values: {"predictions": values["x"] / 2 + 2})
    base = tmp_path_factory.mktemp("half_plus_two")
    hand.export(base / "123", features)
    with serving(base, "--model_name=half_plus_two") as server:
        yield server


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    directory = Hand(NAMED, sums).export(tmp_path_factory.mktemp("named") / "1", NAMED)
    with serving(directory) as server:
        yield server


PREDICT = "/v1/models/half_plus_two:predict"


@pytest.mark.parametrize("path", [PREDICT, PREDICT.replace(":", "/versions/123:"), PREDICT.upper()])
def test_half_plus_two_as_it_was_recorded(half_plus_two, path):
    path = path.replace("HALF_PLUS_TWO", "half_plus_two")
    status, headers, text = half_plus_two.raw("POST", path, b'{"instances": [1.0, 2.0, 5.0]}')
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert text == '{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'


def test_half_plus_two_in_columns(half_plus_two):
    for body in (b'{"inputs": [3.0, 4.0]}', b'{"inputs": {"x": [3.0, 4.0]}}'):
        _, _, text = half_plus_two.raw("POST", PREDICT, body)
        assert text == '{\n    "outputs": [\n        3.5,\n        4.0\n    ]\n}'


def test_the_status_as_the_page_shows_it(half_plus_two):
    recorded = """{
 "model_version_status": [
  {
   "version": "123",
   "state": "AVAILABLE",
   "status": {
    "error_code": "OK",
    "error_message": ""
   }
  }
 ]
}
"""
    for path in ("/v1/models/half_plus_two", "/v1/models/half_plus_two/versions/123"):
        assert half_plus_two.raw("GET", path)[2] == recorded


def test_the_metadata_as_it_was_recorded(half_plus_two):
    status, content = half_plus_two.get("/v1/models/half_plus_two/metadata")
    assert status == 200
    assert content["model_spec"] == {
        "name": "half_plus_two",
        "signature_name": "",
        "version": "123",
    }
    signature = content["metadata"]["signature_def"]["signature_def"]["serving_default"]
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    name = signature["inputs"]["x"].pop("name")
    assert name.endswith(":0")
    assert signature["inputs"] == {"x": {"dtype": "DT_FLOAT", "tensor_shape": shape}}
    assert set(signature) == {"inputs", "outputs", "method_name", "defaults"}


def test_an_error_is_an_object_with_one_key(half_plus_two):
    status, content = half_plus_two.ask({"instances": [1.0, 5.0]}, "/v1/models/half:predict")
    assert status == 404
    assert list(content) == ["error"]


def test_rows_and_columns_with_named_inputs_as_the_page_has_them(named):
    assert named.ask({"instances": ROWS}) == (200, {"predictions": [325.0, 338.0]})
    assert named.ask({"inputs": COLUMNS}) == (200, {"outputs": [325.0, 338.0]})


def test_a_ragged_feature_is_two_inputs_which_rows_give_where_each_record_has_one_value(tmp_path):
    features = (Feature("tags", "int64", (None,)), Feature("x", "float32"))

    def function(values):
        tags = tf.cast(tf.reduce_sum(values["tags"], 1), tf.float32)
        return {"predictions": tags + values["x"]}

    with serving(Hand(features, function).export(tmp_path / "1", features)) as server:
        instances = [{"tags": k, "tags_row_lengths": 1, "x": 0.5} for k in (7, 8)]
        assert server.ask({"instances": instances}) == (200, {"predictions": [7.5, 8.5]})
        # Stacked, they are 7, 8 and 2, 0: both values are the first record's.
        instances[0]["tags_row_lengths"], instances[1]["tags_row_lengths"] = 2, 0
        assert server.ask({"instances": instances}) == (200, {"predictions": [15.5, 0.5]})


NUMBERS = np.float32([[9000000, 999999, 0.5], [0.0003, 0.00003, 555557.5]])


def test_numbers_are_written_as_its_tests_have_them():
    assert answer_text.rows_text({"only": NUMBERS}) == (
        '{\n    "predictions": [[9e+06, 999999.0, 0.5], [0.0003, 3e-05, 555557.5]\n    ]\n}'
    )
    odd = np.float32([[np.nan, np.inf], [3, -np.inf]])
    assert answer_text.rows_text({"only": odd}) == (
        '{\n    "predictions": [[NaN, Infinity], [3.0, -Infinity]\n    ]\n}'
    )


def test_a_number_that_six_digits_do_not_give_back_has_nine():
    values = np.float32([0.1, 0.12345679, 1234567, 16777215, -0.0, 3.4028235e38, 1e-45])
    text = answer_text.rows_text({"only": values})
    assert text == (
        '{\n    "predictions": [0.1, 0.123456791, 1234567.0, 16777215.0, -0.0, 3.40282347e+38, '
        "1.4013e-45\n    ]\n}"
    )
    assert np.float32(json.loads(text)["predictions"]).tobytes() == values.tobytes()


def test_several_outputs_are_objects_in_rows_and_one_object_in_columns():
    outputs = {
        "double_scalar": np.float32([8, 9]),
        "float_tensor": np.float32([[1], [2]]),
        "int_tensor": np.float32([[[1, 2], [3, 4]], [[7, 8], [9, 0]]]),
    }
    assert (
        answer_text.rows_text(outputs)
        == """{
    "predictions": [
        {
            "double_scalar": 8.0,
            "float_tensor": [1.0],
            "int_tensor": [[1.0, 2.0], [3.0, 4.0]]
        },
        {
            "double_scalar": 9.0,
            "float_tensor": [2.0],
            "int_tensor": [[7.0, 8.0], [9.0, 0.0]]
        }
    ]
}"""
    )
    assert json.loads(answer_text.columns_text(outputs)) == {
        "outputs": {name: array.tolist() for name, array in outputs.items()}
    }
    assert (
        answer_text.columns_text({"a": np.float32([[1], [2]]), "b": np.float32([3])})
        == """{
    "outputs": {
        "a": [
            [
                1.0
            ],
            [
                2.0
            ]
        ],
        "b": [
            3.0
        ]
    }
}"""
    )
