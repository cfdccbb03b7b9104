import pytest

from tests.local_cloud.cloud_fixture import cloud_fixture, each_cloud_process_fixture  # noqa: F401
from tests.local_cloud.settings import Fault
from tfps.errors import UserError
from tfps.storage import objects


def test_a_listing_is_paged_and_tells_size_generation_and_checksum(cloud):
    bucket = objects.client().bucket("bucket")
    names = [f"{number:02d}" for number in range(7)]
    blobs = [bucket.blob(f"listed/{name}") for name in names]
    for number, blob in enumerate(blobs):
        blob.upload_from_string(b"x" * number)
    bucket.blob("listed/deeper/one").upload_from_string(b"")
    bucket.blob("listed2").upload_from_string(b"")
    cloud.set(page_size=3)
    found = objects.list_objects("gs://bucket/listed")
    assert cloud.counted()["requests"] == {"list": 3}
    assert list(found) == names
    assert [found[name].bytes for name in names] == list(range(7))
    assert [found[name].generation for name in names] == [blob.generation for blob in blobs]
    assert found["00"].crc32c == "00000000"


def test_what_lies_below_a_directory_is_listed_and_read(cloud):
    bucket = objects.client().bucket("bucket")
    for name in ("one", "deep/two", "deep/er/three", "dip/four"):
        bucket.blob(f"tree/{name}").upload_from_string(name.encode())
    bucket.blob("tree2/five").upload_from_string(b"")
    cloud.set(page_size=2)
    found = objects.list_objects("gs://bucket/tree", deeply=True)
    assert {name: each.bytes for name, each in found.items()} == {
        **{"one": 3, "deep/two": 8, "deep/er/three": 13, "dip/four": 8}
    }
    assert objects.list_directories("gs://bucket/tree") == ["deep", "dip"]
    assert objects.list_directories("gs://bucket/tree/dip") == []
    assert {"tree", "tree2"} <= set(objects.list_directories("gs://bucket"))
    assert objects.read("gs://bucket/tree/deep/two") == b"deep/two"
    with pytest.raises(FileNotFoundError):
        objects.read("gs://bucket/tree/nothing")
    cloud.set(permissions={"bucket": ()})
    for ask in (objects.list_directories, objects.read):
        with pytest.raises(UserError, match="may not use the bucket 'bucket'"):
            ask("gs://bucket/tree/one")


def test_failed_requests_are_made_again_and_counted(cloud):
    objects.client().bucket("bucket").blob("again/x").upload_from_string(b"abc")
    before = objects.count()
    for what in ("503", "429", "truncate"):
        cloud.set(faults=(Fault(what, ("list",), next=1),))
        assert objects.list_objects("gs://bucket/again")["x"].bytes == 3
    assert objects.count() - before == 3


def test_a_listing_that_cannot_be_had_says_why(cloud):
    with pytest.raises(UserError, match="there is no bucket 'absent'; correct the name, or make"):
        objects.list_objects("gs://absent/dir")
    cloud.set(permissions={"bucket": ()})
    with pytest.raises(UserError, match="may not use the bucket 'bucket'; grant their account"):
        objects.list_objects("gs://bucket/dir")
