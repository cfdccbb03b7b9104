"""The local cloud itself, with the two clients that tests reach it by."""

import time

import pytest
import tensorflow as tf
from google.api_core import exceptions
from google.cloud.storage.retry import DEFAULT_RETRY

from tests.local_cloud.cloud_fixture import cloud_fixture, each_cloud_process_fixture  # noqa: F401
from tests.local_cloud.settings import Fault, FaultPlan
from tfps.storage import objects

CONTENT = bytes(range(256)) * 4000


@pytest.fixture(name="blob")
def blob_fixture(cloud):
    blob = objects.client().bucket("bucket").blob("dir/object")
    blob.upload_from_string(CONTENT)
    cloud.counted()
    return blob


def read_by_tensorflow(name="gs://bucket/dir/object"):
    with tf.io.gfile.GFile(name, "rb") as file:
        return file.read()


def test_each_client_reads_what_the_other_wrote(cloud, blob):
    assert read_by_tensorflow() == CONTENT
    with tf.io.gfile.GFile("gs://bucket/dir/other", "wb") as file:
        file.write(CONTENT[:999])
    assert objects.client().bucket("bucket").blob("dir/other").download_as_bytes() == CONTENT[:999]
    tf.io.gfile.rename("gs://bucket/dir/other", "gs://bucket/dir/third")
    assert tf.io.gfile.glob("gs://bucket/dir/*") == [
        "gs://bucket/dir/object",
        "gs://bucket/dir/third",
    ]
    tf.io.gfile.remove("gs://bucket/dir/third")
    counted = cloud.counted()
    assert counted["requests"]["copy"] == 1
    assert counted["bytes"]["read"] == len(CONTENT) + 999
    assert counted["faults"] == {}


def test_a_generation_grows_with_every_write_and_can_be_asked_for(cloud, blob):
    first = blob.generation
    blob.upload_from_string(b"new")
    assert blob.generation > first
    assert objects.client().bucket("bucket").get_blob("dir/object").generation == blob.generation
    old = objects.client().bucket("bucket").blob("dir/object", generation=first)
    with pytest.raises(exceptions.NotFound):
        old.download_as_bytes()
    with pytest.raises(exceptions.PreconditionFailed):
        blob.upload_from_string(b"newer", if_generation_match=first)


@pytest.mark.quick("fake-gcs-server-truncate", "gcp-storage-emulator-503")
@pytest.mark.parametrize("what", ["429", "503", "truncate"])
def test_both_clients_try_again(cloud, blob, what):
    cloud.set(faults=(Fault(what, ("read",), next=1),))
    assert read_by_tensorflow() == CONTENT
    assert cloud.counted()["faults"] == {what: 1}
    cloud.set(faults=(Fault(what, ("read",), next=1),))
    assert DEFAULT_RETRY(blob.download_as_bytes)() == CONTENT
    assert cloud.counted()["faults"] == {what: 1}


def test_an_upload_that_failed_goes_on_from_its_beginning(cloud, blob):
    # The first request of an upload gives it an address; the second one, with the bytes, fails.
    cloud.set(faults=(Fault("503", ("write",), next=1, skip=1),))
    with tf.io.gfile.GFile("gs://bucket/dir/uploaded", "wb") as file:
        file.write(CONTENT)
    assert cloud.counted()["faults"] == {"503": 1}
    assert read_by_tensorflow("gs://bucket/dir/uploaded") == CONTENT


@pytest.mark.parametrize(
    ("what", "theirs"),
    [
        ("401", exceptions.Unauthorized),
        ("403", exceptions.Forbidden),
    ],
)
def test_both_clients_give_up_at_once(cloud, blob, what, theirs):
    cloud.set(faults=(Fault(what, ("read",), fraction=1.0),))
    with pytest.raises(tf.errors.PermissionDeniedError):
        read_by_tensorflow()
    with pytest.raises(theirs):
        blob.download_as_bytes()


@pytest.mark.quick("fake-gcs-server")
def test_a_stalled_connection_sends_half_and_stays_open(cloud, blob):
    cloud.set(faults=(Fault("stall", ("read",), next=1),), stall_seconds=1.0)
    began = time.monotonic()
    assert read_by_tensorflow() == CONTENT
    assert time.monotonic() - began >= 1.0


def test_latency_and_bandwidth(cloud, blob):
    cloud.set(latency_seconds=0.3, bytes_per_second=2.0 * len(CONTENT))
    began = time.monotonic()
    read_by_tensorflow()
    assert time.monotonic() - began >= 0.8


def test_faults_come_in_even_distances_or_first():
    plan = FaultPlan((Fault("503", ("read",), fraction=0.25), Fault("429", next=1, object="b")))
    found = [plan.of("read", "a") for _ in range(8)]
    assert found == ["", "", "", "503"] * 2
    assert [plan.of("stat", name) for name in "abb"] == ["", "429", ""]
    assert plan.of("token", "") == ""
