"""The exported model that kept deployments serve, in a bucket of this machine."""

import atexit
import contextlib
import functools
import pathlib
import tempfile
from collections.abc import Iterator

import pytest

from tests.cloud.deployment import exports
from tests.local_cloud.cloud_fixture import forget_credentials
from tests.local_cloud.local_cloud import LocalCloud

MODEL = "gs://bucket/runs/census"


@contextlib.contextmanager
def in_bucket() -> Iterator[None]:
    """Reaches the bucket, in which three versions of the model are, while it is entered."""
    cloud, is_new = _cloud(), _cloud.cache_info().hits == 0
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cloud.environ.items():
            patch.setenv(name, value)
        forget_credentials()
        try:
            if is_new:
                exports.upload(MODEL, 1, 2, 3, data_bytes=1 << 20)
            yield
        finally:
            forget_credentials()


@functools.cache
def _cloud() -> LocalCloud:
    """One for this process, with which it ends."""
    directory = tempfile.TemporaryDirectory(prefix="tfps-golden-")
    atexit.register(directory.cleanup)
    cloud = LocalCloud(pathlib.Path(directory.name), "bucket")
    atexit.register(cloud.close)
    return cloud
