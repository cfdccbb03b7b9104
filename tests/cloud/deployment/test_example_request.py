"""The request that is shown is one that the model's signature takes."""

import dataclasses
import json
import shlex

import numpy as np
import pytest
import tensorflow as tf

from cloud.deployment import sample_records
from tests.cloud.deployment.exports import FEATURES, RAGGED
from tests.cloud.deployment.test_checks import MODEL
from tfps.data.feature import Feature
from tfps.model.inputs import signature_specs

ODD = (Feature("it's", "int64", (), 1), Feature("picture", "float32", (2, 3)), *RAGGED)


def columns(body):
    """Tensors by name, as TensorFlow Serving makes them of a request."""
    request = json.loads(body)
    if "inputs" in request:
        return request["inputs"]
    rows = request["instances"]
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("features", [FEATURES, RAGGED, ODD], ids=["fixed", "ragged", "odd"])
def test_the_signature_takes_it(features):
    found = columns(sample_records.body(dataclasses.replace(MODEL, features=features)))
    specs = signature_specs(features)
    assert set(found) == set(specs)
    for name, value in found.items():
        value = tf.constant(np.array(value), specs[name].dtype)
        assert specs[name].is_compatible_with(value), name
    for feature in features:
        if feature.vocabulary_size:
            assert np.array(found[feature.name]).max() < feature.vocabulary_size


def test_the_shell_hands_it_over_as_it_is():
    model = dataclasses.replace(MODEL, features=ODD)
    line = sample_records.curl(model, "http://127.0.0.1:8501/v1/models/m")
    *command, data = shlex.split(line)
    assert command == [
        *("curl", "--fail-with-body", "http://127.0.0.1:8501/v1/models/m:predict", "--data")
    ]
    assert json.loads(data) == json.loads(sample_records.body(model))
