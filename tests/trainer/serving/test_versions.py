"""A server follows the versions of its model, and no answer is of two of them."""

import os
import pathlib
import random
import shutil
import threading
import time

import pytest
import tensorflow as tf

from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tests.trainer.serving.served_models import export_number
from tests.trainer.serving.server import LIMIT, serving
from tfps.errors import UserError
from trainer.serving.app import VERSION_HEADER
from trainer.serving.model_versions import ModelVersions

NEWEST = 4


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Versions 1 to 4, whose answers are their numbers; to be copied."""
    directory = tmp_path_factory.mktemp("versions")
    for number in range(1, NEWEST + 1):
        export_number(directory / str(number), number)
    return directory


def put(kept, base, number, spoil=lambda directory: None):
    """A version as an export puts it there, whole or spoilt, in one renaming."""
    staged = pathlib.Path(base, f"{number}.tmp")
    shutil.copytree(kept / str(min(number, NEWEST)), staged)
    spoil(staged)
    staged.rename(base / str(number))


def truncate(directory):
    [values] = directory.glob("variables/*.data-*")
    os.truncate(values, values.stat().st_size // 2)


SPOILS = {
    "half its values": truncate,
    "no values": lambda directory: shutil.rmtree(directory / "variables"),
    "no index": lambda directory: (directory / "variables/variables.index").unlink(),
    "no graph": lambda directory: (directory / "saved_model.pb").write_bytes(b""),
    "half a graph": lambda directory: os.truncate(directory / "saved_model.pb", 1000),
    "no schema": lambda directory: (directory / "schema.json").unlink(),
    "other warm-up": lambda directory: (
        directory / "assets.extra/tf_serving_warmup_requests"
    ).write_bytes(b"\x01" * 50),
}


def answers(versions):
    return versions.newest.model.predict({"x": tf.constant([0.0])})["rows"].tolist()


def test_a_new_version_takes_the_old_one_s_place_and_who_holds_the_old_one_may_ask_it(
    kept, tmp_path
):
    put(kept, tmp_path, 1)
    versions = ModelVersions.open(str(tmp_path))
    before = versions.newest
    versions.look()
    assert versions.newest is before
    put(kept, tmp_path, 3)
    put(kept, tmp_path, 2)
    versions.look()
    assert (versions.newest.number, answers(versions)) == (3, [3.0])
    shutil.rmtree(tmp_path / "1")
    assert before.model.predict({"x": tf.constant([0.0])})["rows"].tolist() == [1.0]


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_version_that_is_not_whole_is_said_and_the_loaded_one_goes_on(
    kept, tmp_path, spoil, caplog
):
    put(kept, tmp_path, 1)
    versions = ModelVersions.open(str(tmp_path))
    put(kept, tmp_path, 2, SPOILS[spoil])
    for _ in range(3):
        versions.look()
    assert (versions.newest.number, answers(versions)) == (1, [1.0])
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("version 2 cannot be served: ")
    assert said[0].endswith("; version 1 stays")
    assert f"{tmp_path}/2" in said[0]
    assert list(versions.failures()) == [2]
    shutil.rmtree(tmp_path / "2")
    put(kept, tmp_path, 2)
    deadline = time.monotonic() + LIMIT
    while versions.newest.number == 1:  # it is tried again, but not all the time
        assert time.monotonic() < deadline
        versions.look()
    assert (answers(versions), versions.failures()) == ([2.0], {})


def test_who_reads_why_versions_fail_is_not_disturbed_by_another_failure(kept, tmp_path):
    put(kept, tmp_path, 1)
    versions = ModelVersions.open(str(tmp_path))
    put(kept, tmp_path, 2, truncate)
    versions.look()
    reading = iter(versions._failures)  # as a thread that answers a question does
    put(kept, tmp_path, 3, truncate)
    versions.look()
    assert list(reading) == [2]
    assert list(versions.failures()) == [2, 3]


def test_a_newer_one_is_served_over_one_that_is_not_whole(kept, tmp_path):
    put(kept, tmp_path, 1)
    versions = ModelVersions.open(str(tmp_path))
    put(kept, tmp_path, 2, truncate)
    versions.look()
    put(kept, tmp_path, 3)
    versions.look()
    assert (versions.newest.number, list(versions.failures())) == (3, [2])


def test_at_the_start_the_newest_that_can_be_served_is_taken(kept, tmp_path):
    put(kept, tmp_path, 2)
    put(kept, tmp_path, 3, truncate)
    versions = ModelVersions.open(str(tmp_path))
    assert (versions.newest.number, list(versions.failures())) == (2, [3])
    shutil.rmtree(tmp_path / "2")
    with pytest.raises(UserError, match=f"--model={tmp_path}/3"):
        ModelVersions.open(str(tmp_path))


def test_deleted_versions_are_survived(kept, tmp_path, caplog):
    put(kept, tmp_path, 1)
    put(kept, tmp_path, 2)
    versions = ModelVersions.open(str(tmp_path))
    shutil.rmtree(tmp_path / "2")
    versions.look()  # the one before is what there is now: somebody took the new one back
    assert (versions.newest.number, answers(versions)) == (1, [1.0])
    shutil.rmtree(tmp_path)
    for _ in range(3):
        versions.look()
    assert answers(versions) == [1.0]
    assert [record.getMessage() for record in caplog.records] == [
        "version 1 is served in place of version 2",
        f"{tmp_path} has no version any more; version 1 stays",
    ]


def test_two_models_that_do_not_fit_beside_each_other_are_not_loaded(kept, tmp_path, monkeypatch):
    put(kept, tmp_path, 1)
    versions = ModelVersions.open(str(tmp_path))
    size = versions.newest.model.variable_bytes
    assert size > 1 << 20
    monkeypatch.setattr("tfps.cluster.resources.memory_limit", lambda: 2 * size - 1)
    put(kept, tmp_path, 2)
    versions.look()
    assert versions.newest.number == 1
    assert " next to 1 MiB of others" in versions.failures()[2]


def test_one_version_s_directory_is_served_and_not_followed(kept, tmp_path):
    put(kept, tmp_path, 1)
    versions = ModelVersions.open(f"{tmp_path}/1/")
    put(kept, tmp_path, 2)
    versions.follow(0.01, threading.Event())  # at once: there is nothing to follow
    assert versions.newest.number == 1


def test_storage_that_cannot_be_read_is_said_and_looked_at_again(kept, tmp_path):
    base = tmp_path / "export"
    put(kept, base, 1)
    with serving(tmp_path, "--poll_seconds=0.1") as server:
        base.rename(tmp_path / "elsewhere")
        base.write_text("no directory")
        server.wait_for("; version 1 stays")
        base.unlink()
        (tmp_path / "elsewhere").rename(base)
        put(kept, base, 2)
        server.wait_for("version 2 is served in place of version 1")
        assert not [line for line in server.said if "Traceback" in line]


@pytest.mark.slow
def test_versions_in_a_bucket_are_followed(cloud, kept):
    def upload(number):
        """As an export does: the graph last."""
        target = f"gs://bucket/job/export/{number}"
        for path in sorted(kept.joinpath(str(number)).rglob("*"), key=lambda p: p.suffix == ".pb"):
            if path.is_file():
                name = path.relative_to(kept / str(number))
                tf.io.gfile.makedirs(f"{target}/{name.parent}")
                tf.io.gfile.copy(str(path), f"{target}/{name}", overwrite=True)

    upload(1)
    versions = ModelVersions.open("gs://bucket/job")
    assert (versions.newest.number, answers(versions)) == (1, [1.0])
    upload(2)
    versions.look()
    assert (versions.newest.number, answers(versions)) == (2, [2.0])
    tf.io.gfile.rmtree("gs://bucket/job/export")
    versions.look()
    assert answers(versions) == [2.0]


def test_a_server_tells_of_its_versions(kept, tmp_path):
    put(kept, tmp_path / "export", 1)
    with serving(tmp_path, "--poll_seconds=0.1") as server:
        put(kept, tmp_path / "export", 2, truncate)
        server.wait_for("version 2 cannot be served: .*; version 1 stays")
        status, content = server.get("/v1/models/default")
        states = [(each["version"], each["state"]) for each in content["model_version_status"]]
        assert (status, states) == (200, [("1", "AVAILABLE"), ("2", "END")])
        broken = content["model_version_status"][1]["status"]
        assert broken["error_code"] == "UNKNOWN"
        assert "export/2" in broken["error_message"]
        asked = {"instances": [0.0]}
        path = "/v1/models/default/versions/{}:predict"
        assert server.ask(asked, path.format(1))[0] == 200
        status, content = server.ask(asked, path.format(2))
        assert status == 404
        assert "version 2 of the model 'default' is not served; version 1 is (" in content["error"]
        put(kept, tmp_path / "export", 3)
        server.wait_for("version 3 is served in place of version 1")
        assert server.ask(asked, path.format(3))[0] == 200
        assert server.ask(asked, path.format(1))[0] == 404
        assert server.ask(asked)[1]["predictions"] == [{"first": 3.0, "rows": 3.0}]


class Client(threading.Thread):
    """Asks until it is told to stop, and keeps what it was answered by.

    Attributes:
        seen: How many answers it had of each version.
        wrong: What was wrong with one.
    """

    def __init__(self, server, stop, seed):
        super().__init__(daemon=True)
        self.seen = {}
        self.wrong = []
        self._server, self._ended, self._random = server, stop, random.Random(seed)

    def run(self):
        connection = self._server.connection()
        try:
            while not self._ended.is_set():
                self._ask(connection)
                if self._random.random() < 0.05:
                    connection.close()  # and the next request opens another
        except Exception as error:
            self.wrong.append(repr(error))
        finally:
            connection.close()

    def _ask(self, connection):
        count = self._random.randint(1, 8)
        rows = ", ".join(str(self._random.randrange(1 << 18)) for _ in range(count))
        key = self._random.choice(["instances", "inputs"])
        connection.request("POST", "/v1/models/default:predict", f'{{"{key}": [{rows}]}}')
        answer = connection.getresponse()
        text, version = answer.read().decode(), answer.headers[VERSION_HEADER]
        numbers = set(text.replace("]", " ").replace(",", " ").replace("}", " ").split())
        numbers = {each.strip("[") for each in numbers if each.strip("[")[:1].isdigit()}
        found = text.count(f"{version}.0")
        if answer.status != 200 or numbers != {f"{version}.0"} or found != 2 * count:
            self.wrong.append((answer.status, version, text))
        self.seen[version] = self.seen.get(version, 0) + 1


@pytest.mark.parametrize(
    ("clients", "seconds"),
    [(20, 3), pytest.param(200, 60, marks=[pytest.mark.slow, pytest.mark.timeout(600)])],
)
def test_no_answer_is_lost_or_of_two_versions_while_they_change(kept, tmp_path, clients, seconds):
    put(kept, tmp_path, 1)
    stop = threading.Event()
    with serving(tmp_path, "--poll_seconds=0.2") as server:
        began = time.monotonic()
        threads = [Client(server, stop, seed) for seed in range(clients)]
        for thread in threads:
            thread.start()
        try:
            for number in range(2, NEWEST + 1):  # the middle one is not whole
                time.sleep(seconds / NEWEST)
                put(kept, tmp_path, number, truncate if number == 3 else lambda directory: None)
                said = "cannot be served" if number == 3 else "is served in place"
                server.wait_for(f"version {number} {said}")
            wanted, deadline = began + seconds, time.monotonic() + LIMIT
            while time.monotonic() < wanted or not all(str(NEWEST) in t.seen for t in threads):
                assert time.monotonic() < deadline
                assert all(thread.is_alive() for thread in threads)
                time.sleep(0.05)
        finally:
            stop.set()
            for thread in threads:
                thread.join(LIMIT)
        took = time.monotonic() - began
    assert [wrong for thread in threads for wrong in thread.wrong] == []
    seen = {n: sum(t.seen.get(str(n), 0) for t in threads) for n in range(1, NEWEST + 1)}
    assert (seen[1] > 0, seen[2] > 0, seen[3], seen[4] > 0) == (True, True, 0, True)
    print(f"{clients} clients, {took:.0f} s: {sum(seen.values()) / took:.0f} answers/s, {seen}")
