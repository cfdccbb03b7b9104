"""What a run appends as it continues."""

import pytest
import tensorflow as tf

from tests.local_cloud.cloud_fixture import cloud_fixture, each_cloud_process_fixture  # noqa: F401
from tfps.storage import files
from tfps.storage.failures import StorageError
from tfps.storage.files import GrowingFile


def name(number):
    return f"part-{number}"


def test_what_is_flushed_can_be_read_and_nothing_is_there_before(tmp_path):
    file = GrowingFile(str(tmp_path / "below"), name, b"head ")
    file.flush()
    assert not (tmp_path / "below").exists()
    for text in (b"one ", b"two "):
        file.append(text)
    file.flush()
    assert (tmp_path / "below/part-0").read_bytes() == b"head one two "
    file.append(b"three")
    assert (tmp_path / "below/part-0").read_bytes() == b"head one two "
    file.flush()
    assert (tmp_path / "below/part-0").read_bytes() == b"head one two three"


def test_what_cannot_be_written_waits_until_it_can(tmp_path):
    (tmp_path / "below").write_text("not a directory")
    file = GrowingFile(str(tmp_path / "below"), name, b"head ")
    for text in (b"one ", b"two"):
        file.append(text)
        with pytest.raises(StorageError, match="below"):
            file.flush()
    (tmp_path / "below").unlink()
    file.flush()
    assert (tmp_path / "below/part-0").read_bytes() == b"head one two"


@pytest.mark.slow
def test_objects_are_written_again_until_they_are_large(cloud, monkeypatch):
    monkeypatch.setattr(files, "_OBJECT_BYTES", 20)
    file = GrowingFile("gs://bucket/below", name, b"head ")
    for text in (b"one ", b"two ", b"three four ", b"five"):
        file.append(text)
        file.flush()
    found = {
        each: tf.io.gfile.GFile(f"gs://bucket/below/{each}", "rb").read()
        for each in tf.io.gfile.listdir("gs://bucket/below")
    }
    assert found == {"part-0": b"head one two three four ", "part-1": b"head five"}
