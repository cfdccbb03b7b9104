"""What is served equals what the export predicts, for models and requests of every kind."""

import base64
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.serving import served_models
from tests.trainer.serving.served_models import TASKS, as_json, drawn, png
from tests.trainer.serving.server import Asked
from tfps.data import examples
from tfps.model.inputs import pack_signature_inputs

RECORDS = 5


# "kinds" has features of all kinds that the others have.
@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=() if n == "kinds" else pytest.mark.slow) for n in TASKS],
)
def served(request, tmp_path_factory):
    """A server, the model that it serves, and records."""
    job_dir = tmp_path_factory.mktemp(request.param)
    served_models.export_task(request.param, job_dir / "export" / "3")
    model = served_models.load(job_dir / "export")
    return Asked(job_dir), model, drawn(model.features, RECORDS)


def rows_of(records):
    """Records as objects, those of varying length as lists."""
    columns = {name: as_json(value) for name, value in records.items()}
    return [{name: values[k] for name, values in columns.items()} for k in range(RECORDS)]


def check_rows(answer, expected):
    status, content = answer
    assert status == 200, content
    assert list(content) == ["predictions"]
    found = content["predictions"]
    assert len(found) == RECORDS
    if len(expected) == 1:
        [name] = expected
        found = [{name: row} for row in found]
    for name, values in expected.items():
        np.testing.assert_allclose([row[name] for row in found], values, rtol=0, atol=1e-6)


def check_columns(answer, expected):
    status, content = answer
    assert status == 200, content
    assert list(content) == ["outputs"]
    found = content["outputs"] if len(expected) > 1 else dict.fromkeys(expected, content["outputs"])
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6)


def test_rows(served):
    server, model, records = served
    check_rows(server.ask({"instances": rows_of(records)}), model.predict(records))


def test_columns_as_the_signature_has_them(served):
    server, model, records = served
    packed = pack_signature_inputs(records, model.features)
    inputs = {name: as_json(tf.constant(value)) for name, value in packed.items()}
    for asked in ({}, {"signature_name": "serving_default"}, {"signature_name": ""}):
        check_columns(server.ask({"inputs": inputs, **asked}), model.predict(records))


def test_columns_with_lists_of_varying_length(served):
    server, model, records = served
    inputs = {name: as_json(value) for name, value in records.items()}
    check_columns(server.ask({"inputs": inputs}), model.predict(records))


def test_serialized_examples_named_and_bare(served):
    server, model, records = served
    encoded = []
    for row in range(RECORDS):
        values = {name: np.asarray(value[row]) for name, value in records.items()}
        values = {name: x.item() if x.ndim == 0 else x.reshape(-1) for name, x in values.items()}
        example = examples.encode(values, model.features)
        encoded.append({"b64": base64.b64encode(example).decode()})
    for instances in (encoded, [{"examples": each} for each in encoded]):
        asked = {"signature_name": "serving_examples", "instances": instances}
        check_rows(server.ask(asked), model.predict(records))
    asked = {"signature_name": "serving_examples", "inputs": encoded}
    check_columns(server.ask(asked), model.predict(records))


def test_every_number_gives_back_the_float32(served):
    server, model, records = served
    _, content = server.ask({"inputs": {n: as_json(v) for n, v in records.items()}})
    found = content["outputs"]
    for name, values in model.predict(records).items():
        array = found[name] if isinstance(found, dict) else found
        # One batch of the same size: the same kernel, so the same bits.
        assert np.float32(array).tobytes() == values.tobytes()


def test_metadata_tells_dtypes_and_shapes(served):
    server, model, _ = served
    status, content = server.get("/v1/models/default/metadata")
    assert status == 200
    assert content["model_spec"] == {"name": "default", "signature_name": "", "version": "3"}
    signatures = content["metadata"]["signature_def"]["signature_def"]
    assert set(model.signatures) <= set(signatures)
    signature = signatures["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    for feature in model.features:
        found = signature["inputs"][feature.name]
        dtype = {"int64": "DT_INT64", "float32": "DT_FLOAT", "string": "DT_STRING"}[feature.dtype]
        assert found["dtype"] == dtype
        sizes = [-1] if feature.is_ragged else [-1, *feature.shape]
        dims = [{"size": str(size), "name": ""} for size in sizes]
        assert found["tensor_shape"] == {"dim": dims, "unknown_rank": False}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    directory = served_models.export_pictures(tmp_path_factory.mktemp("pictures") / "1")
    return Asked(directory), served_models.load(directory)


@pytest.mark.parametrize("form", ["named", "bare", "columns", "bare columns"])
def test_bytes_of_images(pictures, form):
    server, model = pictures
    files = [png(seed) for seed in range(RECORDS)]
    encoded = [{"b64": base64.b64encode(file).decode()} for file in files]
    expected = model.predict({"picture": tf.constant(files)})
    asked = {
        "named": {"instances": [{"picture": each} for each in encoded]},
        "bare": {"instances": encoded},
        "columns": {"inputs": {"picture": encoded}},
        "bare columns": {"inputs": encoded},
    }[form]
    check = check_rows if "instances" in asked else check_columns
    check(server.ask(asked), expected)


def test_base64_may_have_spaces_and_lack_its_padding(pictures):
    server, model = pictures
    text = base64.b64encode(png(1)).decode()
    for given in (text.rstrip("="), "\n".join([text[:8], text[8:]])):
        status, content = server.ask({"instances": [{"b64": given}]})
        assert status == 200, content
        expected = model.predict({"picture": tf.constant([png(1)])})["predictions"]
        np.testing.assert_allclose(content["predictions"], expected, rtol=0, atol=1e-6)


def test_the_model_s_own_refusal_is_told(pictures):
    server, _ = pictures
    status, content = server.ask({"instances": ["no picture"]})
    assert status == 400
    assert content["error"].startswith("the model refuses these records: ")
    assert "\n" not in content["error"]


def test_not_a_number_is_a_number(tmp_path):
    features = served_models.X
    hand = served_models.Hand(features, lambda values: {"predictions": 2 * values["x"]})
    server = Asked(hand.export(tmp_path / "1", features))
    body = b'{"instances": [NaN, Infinity, -Infinity, 1e-50, 0.5]}'
    text = server.raw("POST", "/v1/models/default:predict", body)[2]
    assert text == '{"predictions": [NaN, Infinity, -Infinity, 0.0, 1.0]}'
    assert len(json.loads(text)["predictions"]) == RECORDS
