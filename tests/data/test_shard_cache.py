import os
import shutil
import stat
import threading
import time

import pytest

from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.local_cloud.settings import Fault
from tfps.data.shard_cache import ASKED, IN_USE_SECONDS, SHARDS, ShardCache, copy_name, note
from tfps.storage import objects

SIZE = 9_000_000  # more than a range


@pytest.fixture(name="ask", scope="module")
def ask_fixture(cloud_process):
    """Makes an object and asks for it, as a closure does; returns content and the copy's path."""

    def ask(directory, name, size=SIZE, seconds_ago=0.0):
        blob = objects.client().bucket("bucket").blob(name)
        content = name.encode() + os.urandom(size - len(name))
        blob.upload_from_string(content)
        path = f"gs://bucket/{name}"
        copy = copy_name(path, blob.generation)
        asked = directory / ASKED / copy
        asked.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        asked.write_text(note(path, blob.generation))
        then = time.time() - seconds_ago
        os.utime(asked, (then, then))
        return content, directory / SHARDS / copy

    return ask


def test_what_was_asked_for_is_copied_in_ranges(cloud, ask, tmp_path):
    content, copy = ask(tmp_path, "one")
    cache = ShardCache(str(tmp_path), limit_bytes=10 * SIZE)
    cloud.counted()
    cache.fetch_asked()
    assert copy.read_bytes() == content
    counted = cloud.counted()
    assert counted["requests"]["read"] == 2
    cache.fetch_asked()
    ShardCache(str(tmp_path), 10 * SIZE).fetch_asked()  # another process, a later run
    assert "read" not in cloud.counted()["requests"]


def test_an_empty_shard_and_an_old_note(cloud, ask, tmp_path):
    _, old = ask(tmp_path, "old", 100, seconds_ago=2 * IN_USE_SECONDS)
    blob = objects.client().bucket("bucket").blob("empty")
    blob.upload_from_string(b"")
    name = copy_name("gs://bucket/empty", blob.generation)
    (tmp_path / ASKED / name).write_text(note("gs://bucket/empty", blob.generation))
    ShardCache(str(tmp_path), SIZE).fetch_asked()
    assert (tmp_path / SHARDS / name).read_bytes() == b""
    assert not old.exists()


def test_two_processes_share_the_work(cloud, ask, tmp_path):
    content, copy = ask(tmp_path, "shared")
    caches = [ShardCache(str(tmp_path), 10 * SIZE) for _ in range(2)]
    cloud.set(latency_seconds=0.2)
    threads = [threading.Thread(target=cache.fetch_asked) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert copy.read_bytes() == content
    assert cloud.counted()["bytes"]["read"] == SIZE


def test_requests_that_fail_are_made_again(cloud, ask, tmp_path):
    content, copy = ask(tmp_path, "failing")
    cloud.set(faults=(Fault("503", ("read",), next=1), Fault("truncate", ("read",), fraction=0.5)))
    ShardCache(str(tmp_path), 10 * SIZE).fetch_asked()
    assert copy.read_bytes() == content
    assert cloud.counted()["faults"].keys() == {"503", "truncate"}


def test_what_was_used_the_longest_ago_is_evicted(cloud, ask, tmp_path):
    ages = {"a": 0.0, "b": 3 * IN_USE_SECONDS, "c": 2 * IN_USE_SECONDS}
    copies = {}
    cache = ShardCache(str(tmp_path), limit_bytes=400)
    for name, age in ages.items():
        _, copies[name] = ask(tmp_path, name, 100)
        cache.fetch_asked()
        then = time.time() - age
        os.utime(tmp_path / ASKED / copies[name].name, (then, then))
    content, copy = ask(tmp_path, "d", 200)
    cache.fetch_asked()
    assert copy.read_bytes() == content
    assert {name for name, path in copies.items() if path.exists()} == {"a", "c"}
    _, copy = ask(tmp_path, "e", 150)  # c alone may go, which is not enough
    cache.fetch_asked()
    assert not copy.exists()
    assert copies["a"].exists()


def test_a_replaced_object_is_not_copied(cloud, ask, tmp_path, caplog):
    _, copy = ask(tmp_path, "replaced", 100)
    objects.client().bucket("bucket").blob("replaced").upload_from_string(b"new")
    ShardCache(str(tmp_path), SIZE).fetch_asked()
    assert not copy.exists()
    assert "a shard is read without a copy on disk" in caplog.text
    assert os.listdir(tmp_path / SHARDS) == [f"{copy.name}.lock"]


def test_a_wiped_directory_is_made_again_and_remains_are_overwritten(cloud, ask, tmp_path):
    cache = ShardCache(str(tmp_path), 10 * SIZE)
    shutil.rmtree(tmp_path)
    cache.fetch_asked()
    content, copy = ask(tmp_path, "late", 100)
    copy.with_suffix(".partial").write_bytes(b"x" * 500)
    cache.fetch_asked()
    assert copy.read_bytes() == content


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        ShardCache(str(tmp_path / "file"), SIZE).make_directories()


def test_a_directory_that_others_can_write_is_refused(tmp_path):
    cache = tmp_path / "cache"
    ShardCache(str(cache), SIZE).make_directories()
    for made in (cache, cache / ASKED, cache / SHARDS):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700
        for mode in (0o777, 0o770, 0o1777):
            made.chmod(mode)
            with pytest.raises(PermissionError, match=f"others can write to {made} .mode {mode:o}"):
                ShardCache(str(cache), SIZE).make_directories()
        made.chmod(0o755)  # which others can only read
        ShardCache(str(cache), SIZE).make_directories()
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path):
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(PermissionError, match="belongs to user 12345"):
        ShardCache(str(tmp_path), SIZE).make_directories()


@pytest.mark.parametrize("link", ["lock", "evict.lock", "partial", "note"])
def test_no_link_is_followed(cloud, ask, tmp_path, link, caplog):
    content, copy = ask(tmp_path / "cache", f"linked-{link}", 100)
    precious = tmp_path / "precious"
    precious.write_text("precious")
    place = {
        "lock": copy.with_name(f"{copy.name}.lock"),
        "evict.lock": copy.with_name("evict.lock"),
        "partial": copy.with_name(f"{copy.name}.partial"),
        "note": tmp_path / "cache" / ASKED / copy.name,
    }[link]
    cache = ShardCache(str(tmp_path / "cache"), SIZE)
    cache.make_directories()
    place.unlink(missing_ok=True)
    place.symlink_to(precious)
    cache.fetch_asked()
    assert precious.read_text() == "precious"
    if link == "partial":  # the link itself made room
        assert copy.read_bytes() == content
    else:
        assert not copy.exists()
        assert "Too many levels of symbolic links" in caplog.text
