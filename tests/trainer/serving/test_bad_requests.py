"""A bad request is answered with one sentence, and the next good one as ever."""

import base64
import json

import anyio
import pytest
import tensorflow as tf

from tests import prediction_model
from tests.trainer.serving.served_models import Hand
from tests.trainer.serving.server import Asked
from tfps.data import examples
from tfps.data.feature import Feature
from trainer.serving import app

PATH = "/v1/models/default:predict"
FEATURES = (*prediction_model.FEATURES, Feature("tags", "int64", (None,), 5))
GOOD = {"age": 3.0, "ids": [1, 2], "town": "Ulm", "tags": [1, 4]}
COLUMNS = {
    "age": [3.0, 6.0],
    "ids": [[1, 2], [3, 4]],
    "town": ["Ulm", "Bonn"],
    "tags": [1, 4, 2],
    "tags_row_lengths": [2, 1],
}
MOST_BYTES, MOST_RECORDS = 1 << 16, 8


def score(values):
    tags = tf.cast(tf.reduce_sum(values["tags"], 1), tf.float32)
    ids = tf.cast(tf.reduce_sum(values["ids"], 1), tf.float32)
    return {"predictions": values["age"] + ids + tags}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = tmp_path_factory.mktemp("model")
    Hand(FEATURES, score).export(base / "7", FEATURES)
    return Asked(base, max_body=MOST_BYTES, max_batch=MOST_RECORDS)


def check_alive(server):
    assert server.ask({"instances": [GOOD]}) == (200, {"predictions": [11.0]})


def check(server, answer, status, said):
    found, content = answer
    assert (found, list(content)) == (status, ["error"]), content
    assert said in content["error"]
    assert "\n" not in content["error"]
    assert len(content["error"]) < 400
    check_alive(server)


def row(**changed):
    """A second record that is another one."""
    return {"instances": [GOOD, GOOD | changed]}


def without(*names):
    return {"instances": [GOOD, {k: v for k, v in GOOD.items() if k not in names}]}


def columns(**changed):
    return {"inputs": COLUMNS | changed}


BAD_VALUES = [
    (row(age="x"), "instances[1]: feature 'age' is \"x\", not a number"),
    (row(age=None), "instances[1]: feature 'age' is null, not a number"),
    (row(age=True), "instances[1]: feature 'age' is true, not a number"),
    (row(age=[1.0]), "instances[1]: feature 'age' is a list of one element, not a single value"),
    (row(age={"b64": "AA=="}), "instances[1]: feature 'age' is an object, not a number"),
    (row(age=1e39), "instances[1]: feature 'age' is 1e+39, which is too large for float32"),
    (row(age=10**400), "instances[1]: feature 'age' is 1000"),
    (row(ids=[1.0, 2]), "instances[1]: feature 'ids' is 1.0, not a whole number written without"),
    (row(ids=["1", 2]), "instances[1]: feature 'ids' is \"1\", not a whole number"),
    (row(ids=[True, 2]), "instances[1]: feature 'ids' is true, not a whole number"),
    (row(ids=[1]), "instances[1]: feature 'ids' has a list of one element where"),
    (row(ids=[1, 2, 3]), "instances[1]: feature 'ids' has a list of 3 elements where a "),
    (row(ids=5), "instances[1]: feature 'ids' has 5 where a list of 2 is needed"),
    (row(ids=[[1], [2]]), "instances[1]: feature 'ids' is a list of one element, not a single"),
    (
        row(ids=[1, 10]),
        "instances[1]: feature 'ids' has the id 10, outside its vocabulary of 0 to 9",
    ),
    (row(ids=[-1, 2]), "instances[1]: feature 'ids' has the id -1, outside its vocabulary"),
    (row(ids=[2**63, 2]), "instances[1]: feature 'ids' is 9223372036854775808, which does not fit"),
    (row(ids=[-(2**70), 2]), "which does not fit into int64"),
    (row(town=5), 'instances[1]: feature \'town\' is 5, neither a string nor {"b64": "..."}'),
    (row(town=["Ulm"]), "instances[1]: feature 'town' is a list of one element, not a single"),
    (row(town={"b64": "AAA!"}), "feature 'town' is \"AAA!\" under b64, which is not base64"),
    (row(town={"b64": "A"}), "feature 'town' is \"A\" under b64, which is not base64"),
    (row(town={"b64": 5}), "feature 'town' is an object, neither a string nor"),
    (row(town={"b64": "AA==", "x": 1}), "feature 'town' is an object, neither a string nor"),
    (row(town="\ud800"), "feature 'town' is \"\\ud800\", half of a surrogate pair"),
    (row(tags=3), "instances[1]: feature 'tags' is 3, not a list of values"),
    (row(tags=[[1]]), "instances[1]: feature 'tags' is a list of one element, not a whole number"),
    (
        row(tags=[1, 5]),
        "instances[1]: feature 'tags' has the id 5, outside its vocabulary of 0 to 4",
    ),
    (row(tags_row_lengths=2), "instances[1]: input 'tags_row_lengths' is given, unlike in inst"),
    (row(agee=1), 'instances[1]: "agee" is no input of the model, which has age, ids, town, tags'),
    (without("age"), "instances[1]: feature 'age' is missing"),
    (without("tags"), "instances[1]: feature 'tags' is missing"),
    ({"instances": [GOOD, 5]}, "instances[1] is 5, but instances[0] is an object"),
    ({"instances": [[1, 2]]}, "instances[0] is a list of 2 elements, not an object with the inp"),
    ({"instances": []}, '"instances" has no record'),
    ({"instances": GOOD}, '"instances" is an object, not a list of records'),
    ({"instances": [{"b64": "AA=="}]}, "instances[0] is an object, not an object with the inputs"),
    (columns(age=[1.0, "x"]), "inputs: feature 'age' of record 1 is \"x\", not a number"),
    (columns(age=[1.0]), "'ids' has 2 records, but 'age' has 1"),
    (columns(age=1.0), "inputs: feature 'age' is 1.0, not a list with a value per record"),
    (columns(ids=[[1, 2], [3, 99]]), "inputs: feature 'ids' of record 1 has the id 99, outside"),
    (columns(other=[1, 2]), 'inputs: "other" is no input of the model'),
    (columns(tags=[1, 4, 9]), "inputs: value 2 of feature 'tags' has the id 9"),
    (columns(tags_row_lengths=[2, 2]), "'tags_row_lengths' must divide the 3 values of feature 't"),
    (columns(tags_row_lengths=[4, -1]), "among the records, but gives them 4, -1"),
    (columns(tags_row_lengths=[2, 1.0]), "inputs: feature 'tags_row_lengths' of record 1 is 1.0"),
    (columns(tags_row_lengths=[3]), "'tags_row_lengths' has 1 records, but 'age' has 2"),
    ({"inputs": {name: [] for name in COLUMNS}}, '"inputs" has no record'),
    ({"inputs": [1, 2]}, '"inputs" is a list of 2 elements, not an object with the inputs'),
    ({"inputs": {"age": [1.0]}}, "inputs: feature 'ids' is missing"),
    ({"instances": [GOOD], "inputs": COLUMNS}, 'the body has both of "instances" and "inputs"'),
    ({}, 'the body has neither of "instances" and "inputs"'),
    ({"instances": [GOOD], "signatur_name": "x"}, 'the body has the key "signatur_name"'),
    ({"instances": [GOOD], "signature_name": 5}, '"signature_name" is 5, not a string'),
    (
        {"instances": [GOOD], "signature_name": "other"},
        '"signature_name" is "other"; the model has serving_default, serving_examples',
    ),
    ([GOOD], "the body is a list of one element, not a JSON object"),
    (None, "the body is null, not a JSON object"),
    ("instances", 'the body is "instances", not a JSON object'),
]


@pytest.mark.parametrize(("content", "said"), BAD_VALUES)
def test_values_that_the_model_does_not_take(server, content, said):
    check(server, server.ask(content), 400, said)


BAD_BODIES = [
    (b"", "the body is empty"),
    (b"instances = [1, 2]", "the body is not JSON: Expecting value at line 1, column 1"),
    (b'{"instances": [1,]}', "the body is not JSON: "),
    (b'{"instances": [1]} and more', "the body is not JSON: Extra data"),
    (b'{"instances": [{"town": "\xff"}]}', "the body is not UTF-8 at byte 25"),
    (b"\xff\xfe{\x00", "the body is not UTF-8 at byte 0"),
    (b'{"instances": ' + b"[" * 30000, "the body is "),
    (b'{"instances": [' + b"[" * 20000 + b"]" * 20000 + b"]}", "the body is nested too deeply"),
    (
        b'{"instances": [1], "instances": [2]}',
        'an object of the body has the key "instances" twice',
    ),
    (b'{"instances": [{"age": 1, "age": 2}]}', 'an object of the body has the key "age" twice'),
    (
        json.dumps({"instances": [GOOD | {"age": "#"}]}).replace('"#"', "1e400").encode(),
        "the body has 1e400, which is too large for float32",
    ),
    (
        json.dumps({"instances": [GOOD | {"ids": [1, "#"]}]}).replace('"#"', "9" * 5000).encode(),
        "a whole number of the body has too many digits",
    ),
    (
        json.dumps({"instances": [GOOD | {"ids": [1, "#"]}]}).replace('"#"', "NaN").encode(),
        "feature 'ids' is NaN, not a whole number",
    ),
    (
        json.dumps({"instances": [GOOD | {"town": "#"}]})
        .replace('"#"', '{"b64": "AA==", "b64": "AA=="}')
        .encode(),
        'an object of the body has the key "b64" twice',
    ),
]


@pytest.mark.parametrize(("body", "said"), BAD_BODIES, ids=range(len(BAD_BODIES)))
def test_bodies_that_are_no_request(server, body, said):
    check(server, server.ask(body), 400, said)


def encoded(content):
    return {"b64": base64.b64encode(content).decode()}


BAD_EXAMPLES = [
    ([encoded(b"\x01\x02nothing")], "instances[0] is no tf.train.Example"),
    (["text"], "instances[0] is no tf.train.Example"),
    ([encoded(b"")], "instances[0] has no 'age' (it has "),
    ([5], "instances[0]: feature 'examples' is 5, neither a string nor"),
    ([{"records": "x"}], 'instances[0]: "records" is no input of the model, which has examples'),
    ([encoded(b""), {"examples": "x"}], "instances[1] is an object, but instances[0] is a bare"),
]


@pytest.mark.parametrize(("instances", "said"), BAD_EXAMPLES)
def test_examples_that_are_none(server, instances, said):
    answer = server.ask({"signature_name": "serving_examples", "instances": instances})
    check(server, answer, 400, said)


LENIENT = {
    "age": Feature("age", "float32"),
    "ids": Feature("ids", "int64", (None,)),
    "town": Feature("town", "string"),
    "tags": Feature("tags", "int64", (None,)),
}
IN_EXAMPLES = [
    ({"tags": [9]}, LENIENT, "holds the id 9 in 'tags', outside [0, 5)"),
    ({"ids": [1, 2, 3]}, LENIENT, "holds 3 values in 'ids', not 2"),
    ({}, {k: v for k, v in LENIENT.items() if k != "town"}, "has no 'town' (it has age, "),
    (
        {"age": 3},
        LENIENT | {"age": Feature("age", "int64")},
        "holds integers in 'age', not float32",
    ),
]


@pytest.mark.parametrize(("changed", "features", "said"), IN_EXAMPLES)
@pytest.mark.parametrize("in_rows", [True, False])
def test_examples_whose_values_do_not_fit(server, changed, features, said, in_rows):
    good = {"age": 1.0, "ids": [1, 2], "town": b"Ulm", "tags": [1]}
    given = [
        encoded(examples.encode(good, list(LENIENT.values()))),
        encoded(examples.encode(good | changed, list(features.values()))),
    ]
    key, place = ("instances", "instances[1]") if in_rows else ("inputs", "inputs: record 1")
    answer = server.ask({"signature_name": "serving_examples", key: given})
    check(server, answer, 400, f"{place} {said}")


BAD_PATHS = [
    ("GET", "/nothing", 404, "there is nothing at /nothing; there is POST /v1/models/default:pred"),
    ("GET", "/v1/models", 404, "GET /v1/models/default/metadata, and GET / for a form"),
    ("POST", "/v1/models/other:predict", 404, "there is no model 'other' here; there is 'default'"),
    ("GET", "/v1/models/other", 404, "there is no model 'other' here; there is 'default'"),
    ("POST", "/v1/models/default/versions/9:predict", 404, "version 9 of the model 'default' is n"),
    ("GET", "/v1/models/default/versions/9", 404, "is not served; version 7 is"),
    ("POST", f"/v1/models/default/versions/{2**64}:predict", 404, "there is nothing at"),
    ("POST", "/v1/models/default/versions/x:predict", 404, "there is nothing at /v1/models"),
    ("POST", "/v1/models/default/labels/stable:predict", 404, "has no labels; leave the label out"),
    ("POST", "/v1/models/default:classify", 400, "the model has no signature for :classify"),
    ("GET", "/v1/models/default:predict", 405, "takes POST, not GET"),
    ("POST", "/v1/models/default", 405, "takes GET, not POST"),
    ("POST", "/", 405, "/ takes GET, not POST"),
    ("PUT", "/v1/models/default:predict", 405, "takes POST, not PUT"),
    ("DELETE", "/v1/models/default", 405, "takes GET, not DELETE"),
    ("OPTIONS", "/v1/models/default:predict", 405, "takes POST, not OPTIONS"),
    ("BREW", "/v1/models/default:predict", 405, "takes POST, not BREW"),
]


@pytest.mark.parametrize(("method", "path", "status", "said"), BAD_PATHS)
def test_paths_and_methods_that_are_not_there(server, method, path, status, said):
    check(server, server.send(method, path, b"{}" if method == "POST" else None), status, said)


def test_a_405_says_which_method_is_right(server):
    _, headers, _ = server.raw("GET", PATH)
    assert headers["Allow"] == "POST"
    assert server.raw("POST", "/", b"")[1]["Allow"] == "GET, HEAD"


def test_more_records_than_at_once(server):
    content = {"instances": [GOOD] * (MOST_RECORDS + 1)}
    check(server, server.ask(content), 413, "has 9 records, and this server takes up to 8 at once")
    assert server.ask({"instances": [GOOD] * MOST_RECORDS})[0] == 200


def test_more_bytes_than_at_once(server):
    body = b" " * (MOST_BYTES + 1)
    said = "the body has more than 64 KiB, which this server takes (--max_body)"
    check(server, server.ask(body), 413, said)
    filled = json.dumps({"instances": [GOOD]}).encode().ljust(MOST_BYTES)
    assert server.ask(filled)[0] == 200


BAD_HEADERS = [
    ({"Host": "evil.example"}, 403, "the request is for 'evil.example', which is no name of this"),
    ({"Host": "127.0.0.1.evil.example:80"}, 403, "which is no name of this server; ask localhost"),
    ({"Host": "[::1"}, 403, "which is no name of this server"),
    ({"Origin": "http://evil.example"}, 403, "the request comes from a page of 'http://evil.exam"),
    ({"Origin": "http://[x"}, 403, "the request comes from a page of 'http://[x', not from here"),
    ({"Origin": "null"}, 403, "the request comes from a page of 'null', not from here"),
    ({"Content-Encoding": "gzip"}, 415, "the body is encoded as 'gzip'; send it as it is"),
]


@pytest.mark.parametrize(("headers", "status", "said"), BAD_HEADERS)
def test_headers_that_name_another_server_page_or_body(server, headers, status, said):
    check(server, server.ask({"instances": [GOOD]}, headers=headers), status, said)


def test_a_body_that_does_not_come_is_given_up(server, monkeypatch):
    monkeypatch.setattr(app, "_READ_SECONDS", 0.1)

    async def never():
        await anyio.sleep_forever()

    scope = {"type": "http", "method": "POST", "path": PATH, "headers": [(b"host", b"localhost")]}
    sent = []

    async def send(message):
        sent.append(message)

    anyio.run(server.app, scope | {"query_string": b"", "raw_path": PATH.encode()}, never, send)
    assert sent[0]["status"] == 408
    said = "the request did not come within 0.1 s"
    assert json.loads(sent[1]["body"]) == {"error": said}


def test_names_of_the_loopback_and_its_own_page_are_let_in(server):
    for host in (
        "localhost",
        "localhost:8501",
        "127.0.0.1:9999",
        "[::1]:80",
        "LocalHost",
    ):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert server.ask({"instances": [GOOD]}, headers=headers)[0] == 200
