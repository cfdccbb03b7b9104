import dataclasses
from pathlib import Path

import pytest

from configs.smoke import Smoke
from tfps.data import manifest, schema
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.errors import UserError

TASK = Smoke()


@pytest.fixture
def dataset(tmp_path: Path) -> Manifest:
    with DatasetWriter.open(str(tmp_path), "none", 1, TASK.schema()) as writer:
        return writer.finish()


def test_a_schema_that_fits(dataset: Manifest) -> None:
    schema.check(manifest.read(dataset.directory), TASK.schema(), "--data.train")


def test_every_difference_of_a_schema_is_listed(dataset: Manifest) -> None:
    features = [dict(schema) for schema in dataset.features]
    features[0] |= {"dtype": "int64", "shape": [5]}
    features[1]["name"] = "other"
    label = {**dataset.labels[0], "vocabulary_size": 3}
    changed = dataclasses.replace(dataset, features=features, labels=[label])
    with pytest.raises(UserError) as caught:
        schema.check(changed, TASK.schema(), "--data.eval")
    message = str(caught.value)
    assert message.startswith(f"--data.eval={dataset.directory} holds other records")
    for difference in (
        "'numbers' has dtype int64 in the data, but float32 in the config",
        "'numbers' has shape [5] in the data, but [4] in the config",
        "feature 'token' is not in the data",
        "feature 'other' is in the data, but not in the config",
        "'label' has vocabulary_size 3 in the data, but 2 in the config",
        "Prepare the data with this config (write_dataset: with its features= and label=)",
    ):
        assert difference in message


def test_the_same_tokens_in_another_order_are_another_vocabulary(dataset: Manifest) -> None:
    one, other = (Feature("f", "int64", (), tokens) for tokens in (("a", "b"), ("b", "a")))
    assert one.schema() != other.schema()
    assert one.schema() == Feature("f", "int64", (), ("a", "b")).schema()
