"""What is written is what TensorFlow Serving reads, by its own messages."""

import pytest
from google.protobuf import text_format

from cloud.tfserving.models_config import (
    batching_parameters,
    models_config,
    monitoring_config,
)
from tests.cloud.tfserving import protos


@pytest.mark.parametrize(
    ("policy", "versions"), [("latest", ()), ("all", ()), ("specific", (3,)), ("specific", (2, 5))]
)
def test_a_model_and_its_versions(policy, versions):
    text = models_config("census", "gs://bucket/export", policy, versions)
    [model] = protos.models(text).model_config_list.config
    assert (model.name, model.base_path) == ("census", "gs://bucket/export")
    assert model.model_platform == "tensorflow"
    assert model.model_version_policy.WhichOneof("policy_choice") == policy
    assert tuple(model.model_version_policy.specific.versions) == versions


def test_names_of_versions():
    text = models_config("m", "/m", "specific", (2, 5), {"stable": 2, "canary": 5})
    [model] = protos.models(text).model_config_list.config
    assert dict(model.version_labels) == {"stable": 2, "canary": 5}


@pytest.mark.parametrize("base", ['/a "b"/\\n', "/größe/模型", "/tab\tand\nline", "/a'b$(c)"])
def test_any_path_is_read_as_it_is(base):
    [model] = protos.models(models_config("m", base, "latest")).model_config_list.config
    assert model.base_path == base


def test_monitoring_and_batching():
    found = protos.monitoring(monitoring_config()).prometheus_config
    assert (found.enable, found.path) == (True, "/monitoring/prometheus/metrics")
    batching = protos.batching(batching_parameters(64))
    assert batching.max_batch_size.value == batching.max_execution_batch_size.value == 64
    assert batching.enable_large_batch_splitting.value
    assert batching.batch_timeout_micros.value == 2000


def test_unknown_fields_are_refused():
    for read in (protos.models, protos.monitoring, protos.batching):
        with pytest.raises(text_format.ParseError):
            read("unknown: 1")
