"""Records with which servers are warmed up, read without TensorFlow."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from cloud.deployment import sample_records
from cloud.deployment.served_model import ServedModel
from tests.cloud.deployment import exports
from tests.project import ROOT
from tfps.data.feature import Feature
from tfps.errors import UserError
from tfps.export.versions import write_warm_up

FEATURES = (
    Feature("age", "float32"),
    Feature("ids", "int64", (2,), 10),
    Feature("town", "string"),
    Feature("image", "string"),
    Feature("tags", "int64", (None,), 50),
)
RECORDS = {
    "age": np.array([1.5, 2.5], np.float32),
    "ids": np.array([[1, 2], [3, 4]]),
    "town": np.array(["Köln".encode(), b""], object),
    "image": np.array([b"\xff\xd8\x00", b"\x89PNG"], object),
    "tags": tf.ragged.constant([[], [7, 8, 9]], dtype=tf.int64),
}


@pytest.fixture(name="model")
def model_fixture(tmp_path):
    """A model of features of every kind, with the requests that an export has."""
    write_warm_up(str(tmp_path), FEATURES, RECORDS)
    requests = (tmp_path / exports.WARM_UP).read_bytes()
    exports.write(tmp_path, 1, features=FEATURES, warm_up=requests)
    return ServedModel.read(str(tmp_path))


def test_records_are_those_that_were_written(model):
    signature, examples = sample_records.read(model)
    assert (signature, len(examples)) == ("serving_examples", 2)
    first, second = (tf.train.Example.FromString(text).features.feature for text in examples)
    assert first["town"].bytes_list.value == ["Köln".encode()]
    assert second["image"].bytes_list.value == [b"\x89PNG"]
    assert list(second["tags"].int64_list.value) == [7, 8, 9]
    assert list(first["age"].float_list.value) == [1.5]


def test_no_tensorflow_is_loaded(model):
    code = (
        "import sys; from cloud.deployment import sample_records, served_model\n"
        f"model = served_model.ServedModel.read({model.base!r})\n"
        "assert len(sample_records.read(model)[1]) == 2\n"
        "assert not any(name in sys.modules for name in ('tensorflow', 'keras'))\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("content", [b"requests", b"\x09" + bytes(11) + b"\xff" * 9 + bytes(4)])
def test_a_file_of_something_else_is_refused(model, content):
    path = f"{model.path}/{exports.WARM_UP}"
    with open(path, "wb") as file:
        file.write(content)
    with pytest.raises(UserError, match="has no requests to warm a server up; export the model"):
        sample_records.read(model)


def test_a_model_may_have_none(tmp_path):
    exports.write(tmp_path, 1, warm_up=b"")
    assert sample_records.read(ServedModel.read(str(tmp_path))) == ("", ())
