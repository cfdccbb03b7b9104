"""Answers are those that TensorFlow Serving is documented, tested and recorded to give.

Its own words are in its repository: the page g3doc/api_rest.md, and the tests of json_tensor and
http_rest_api_handler.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.serving.served_models import Hand
from tests.trainer.serving.server import Asked
from tfps.data.feature import Feature

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
def directory(tmp_path_factory):
    features = (Feature("x", "float32"),)
    hand = Hand(features, lambda values: {"predictions": values["x"] / 2 + 2})
    base = tmp_path_factory.mktemp("half_plus_two")
    hand.export(base / "123", features)
    return base


@pytest.fixture(scope="module")
def half_plus_two(directory):
    return Asked(directory, "half_plus_two")


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    directory = Hand(NAMED, sums).export(tmp_path_factory.mktemp("named") / "1", NAMED)
    return Asked(directory)


PREDICT = "/v1/models/half_plus_two:predict"


@pytest.mark.parametrize("path", [PREDICT, PREDICT.replace(":", "/versions/123:"), PREDICT.upper()])
def test_half_plus_two_as_it_was_recorded(half_plus_two, path):
    path = path.replace("HALF_PLUS_TWO", "half_plus_two")
    status, headers, text = half_plus_two.raw("POST", path, b'{"instances": [1.0, 2.0, 5.0]}')
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(text) == {"predictions": [2.5, 3.0, 4.5]}


def test_a_name_with_a_slash_and_a_colon_is_encoded_in_the_path(directory):
    server = Asked(directory, "half/plus: two")
    assert server.ask({"instances": [1.0]}, "/v1/models/half%2Fplus%3A%20two:predict")[0] == 200
    status, said = server.get("/v1/models/half/plus")
    assert (status, said["error"][:42]) == (404, "there is nothing at /v1/models/half/plus; ")


def test_half_plus_two_in_columns(half_plus_two):
    for body in (b'{"inputs": [3.0, 4.0]}', b'{"inputs": {"x": [3.0, 4.0]}}'):
        _, _, text = half_plus_two.raw("POST", PREDICT, body)
        assert json.loads(text) == {"outputs": [3.5, 4.0]}


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
        assert half_plus_two.get(path) == (200, json.loads(recorded))


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

    server = Asked(Hand(features, function).export(tmp_path / "1", features))
    instances = [{"tags": k, "tags_row_lengths": 1, "x": 0.5} for k in (7, 8)]
    assert server.ask({"instances": instances}) == (200, {"predictions": [7.5, 8.5]})
    # Stacked, they are 7, 8 and 2, 0: both values are the first record's.
    instances[0]["tags_row_lengths"], instances[1]["tags_row_lengths"] = 2, 0
    assert server.ask({"instances": instances}) == (200, {"predictions": [15.5, 0.5]})


def test_several_outputs_are_objects_in_rows_and_one_object_in_columns(tmp_path):
    numbers = np.float32([0.1, 0.12345679, 1234567, 16777215, -0.0, 3.4028235e38, 1e-45])
    features = (Feature("x", "float32"),)

    def function(values):
        return {"double": 2 * values["x"], "pair": tf.stack([values["x"]] * 2, 1)}

    server = Asked(Hand(features, function).export(tmp_path / "1", features))
    status, content = server.ask({"instances": [1.5, 2.5]})
    assert (status, content["predictions"][1]) == (200, {"double": 5.0, "pair": [2.5, 2.5]})
    _, content = server.ask({"inputs": numbers.tolist()})
    assert [list(content["outputs"]), *map(len, content["outputs"].values())] == [
        *(["double", "pair"], 7, 7)
    ]
    # The shortest number that gives the float32 back.
    text = server.raw("POST", "/v1/models/default:predict", b'{"inputs": [0.1, 0.12345679]}')[2]
    assert '"pair": [[0.1, 0.1], [0.12345679, 0.12345679]]' in text
    assert np.float32(content["outputs"]["pair"])[:, 0].tobytes() == numbers.tobytes()
