"""What the trainer's integration tests share."""

import pytest
from datasets_on_disk import Datasets, make_datasets


@pytest.fixture(name="datasets", scope="session")
def datasets_fixture(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return make_datasets(tmp_path_factory.mktemp("datasets"))
