"""A local cloud for the tests of one module."""

import contextlib
import pathlib
from collections.abc import Iterator

import pytest
import tensorflow as tf

from tests.local_cloud.local_cloud import LocalCloud
from tests.local_cloud.settings import Settings
from tfps.storage import objects

SERVERS = ("gcp-storage-emulator", "fake-gcs-server")


def forget_credentials() -> None:
    """Makes the next request look for credentials again."""
    if objects.client.cache_info().currsize:
        objects.client().close()
    objects.credentials.cache_clear()
    objects.client.cache_clear()


@contextlib.contextmanager
def _reached(cloud: LocalCloud) -> Iterator[LocalCloud]:
    """A cloud that the clients of this process reach."""
    with cloud, pytest.MonkeyPatch.context() as patch:
        for name, value in cloud.environ.items():
            patch.setenv(name, value)
        forget_credentials()
        yield cloud
    forget_credentials()


@pytest.fixture(name="cloud_process", scope="module")
def cloud_process_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    with _reached(LocalCloud(tmp_path_factory.mktemp("cloud"), "bucket")) as cloud:
        yield cloud


@pytest.fixture(name="cloud_process", scope="module", params=SERVERS)
def each_cloud_process_fixture(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCloud]:
    """A cloud with each of the servers, one after the other."""
    directory = tmp_path_factory.mktemp("cloud")
    with _reached(LocalCloud(directory, "bucket", server=request.param)) as cloud:
        yield cloud


@pytest.fixture(name="cloud")
def cloud_fixture(cloud_process: LocalCloud) -> LocalCloud:
    """The module's cloud, nothing wrong with it and nothing counted."""
    cloud_process.settings = Settings()
    cloud_process.set()
    return cloud_process


@pytest.fixture(name="place", scope="module", params=["local", *SERVERS])
def each_place_fixture(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A directory: on disk, and in a bucket of each of the servers."""
    directory = tmp_path_factory.mktemp("place")
    if request.param == "local":
        yield str(directory)
    else:
        with _reached(LocalCloud(directory, "bucket", server=request.param)):
            yield "gs://bucket"


@pytest.fixture(name="job_dir")
def job_dir_anywhere_fixture(place: str, tmp_path: pathlib.Path) -> str:
    """A job_dir of the test's own in a `place`."""
    job_dir = f"{place}/{tmp_path.name}"
    tf.io.gfile.makedirs(job_dir)
    return job_dir
