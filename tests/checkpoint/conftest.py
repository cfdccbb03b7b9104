"""What the tests of checkpoints save."""

import pytest

from tests.training_fixtures import dataset, reused


@pytest.fixture(name="manifest", scope="module")
def manifest_fixture(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=200, shards=2)


@pytest.fixture(name="trainer", scope="module")
def trainer_fixture(manifest):
    """One run's parts for all tests of a module, which leave it with any values."""
    return reused(manifest)
