"""A local cloud for the tests of one module."""

from collections.abc import Iterator

import pytest

from tests.local_cloud.local_cloud import LocalCloud
from tests.local_cloud.settings import Settings
from tfps.storage import objects


def forget_credentials() -> None:
    """Makes the next request look for credentials again."""
    if objects.client.cache_info().currsize:
        objects.client().close()
    objects.credentials.cache_clear()
    objects.client.cache_clear()


@pytest.fixture(name="cloud_process", scope="module")
def cloud_process_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    directory = tmp_path_factory.mktemp("cloud")
    with LocalCloud(directory, "bucket") as cloud, pytest.MonkeyPatch.context() as patch:
        for name, value in cloud.environ.items():
            patch.setenv(name, value)
        forget_credentials()
        yield cloud
    forget_credentials()


@pytest.fixture(name="cloud")
def cloud_fixture(cloud_process: LocalCloud) -> LocalCloud:
    """The module's cloud, nothing wrong with it and nothing counted."""
    cloud_process.settings = Settings()
    cloud_process.set()
    return cloud_process
