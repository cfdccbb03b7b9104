"""Datasets that a run follows: taken in order, each once, known by a position."""

import dataclasses
import json

import pytest

from tfps.data.dataset_names import names_of
from tfps.data.followed_data import SHARDS, FollowedData, Position, is_position, position_of
from tfps.data.manifest import Manifest
from tfps.data.shards import RecordIndex, Shard
from tfps.errors import UserError

PATIENCE = 110.0  # that an event may take on a busy machine


class Stream:
    """Datasets of some records in one shard each, with manifests that hold nothing."""

    def __init__(self, root):
        self.root, self.records, self.wrong = root, {}, set()

    def add(self, *records):
        for count in records:
            directory = self.root / f"{len(self.records):03}"
            self.records[str(directory)] = count
            directory.mkdir()
            (directory / "manifest.json").write_text("{}")

    def read(self, directory):
        if directory in self.wrong:
            raise UserError(f"{directory} is damaged")
        count = self.records[directory]
        shard = Shard("s", count, 0, f"{count:08x}")
        index = RecordIndex(1, ())
        return Manifest(
            name="d", features=[], labels=[], shards=(shard,), index=index, directory=directory
        )

    def follow(self, position=None, seconds=PATIENCE):
        data = FollowedData(names_of(str(self.root)), self.read, seconds)
        data.open(position)
        data.resume(position)
        return data


@pytest.fixture(name="stream")
def stream_fixture(tmp_path):
    return Stream(tmp_path)


@pytest.fixture(name="followed")
def followed_fixture(stream):
    opened = []

    def follow(*args, **kwargs):
        opened.append(stream.follow(*args, **kwargs))
        return opened[-1]

    yield follow
    for each in opened:
        each.stop()


def test_they_are_taken_in_order_two_ahead_and_forgotten_once_saved(stream, followed):
    stream.add(10, 20, 30, 40, 50)
    data = followed()
    assert data.wait(2, PATIENCE)
    assert not data.wait(3, 0.0)  # not before the first is left
    assert [data.of_epoch(k).records for k in range(3)] == [10, 20, 30]
    assert data.shards_of(1) == [(SHARDS, data.of_epoch(1).shards[0])]
    assert data.wait(3, PATIENCE)
    assert data.find(2 * SHARDS) == (data.of_epoch(2), 0)
    assert [data.records_before(k) for k in range(4)] == [0, 10, 30, 60]
    assert [data.records_from(k) for k in range(5)] == [100, 90, 70, 40, 0]
    assert data.progress(1, 25) == (25, 100)
    assert [each.records for each in data.begun(1)] == [10, 20]
    data.saved(2)
    assert data.datasets == (data.of_epoch(2), data.of_epoch(3))
    assert not data.has_shard(SHARDS)
    assert data.has_shard(2 * SHARDS)
    assert data.records_before(2) == 30


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_run_resumes_where_a_checkpoint_was(stream, followed, is_begun):
    stream.add(10, 20, 30, 40)
    first = followed()
    assert first.wait(2, PATIENCE)
    kept = json.loads(json.dumps(first.identities(2, is_begun)))
    assert is_position(kept)
    assert not is_position([{"records": 3}])
    second = followed(position_of(kept))
    assert second.wait(3, PATIENCE)
    assert second.records_before(2) == 30
    assert [second.of_epoch(k).records for k in (2, 3)] == [30, 40]
    assert first.wait(2, PATIENCE)
    first.shards_of(3)
    assert first.wait(3, PATIENCE)
    assert second.identities(4) == first.identities(4)  # the same chain


def test_the_position_tells_other_datasets_of_as_many_records(stream, followed):
    stream.add(10, 20)
    data = followed()
    assert data.wait(1, PATIENCE)
    [position] = data.identities(2)
    assert (position["followed"], position["records"], position["last"]) == (2, 30, "001")
    begun = Position().after("a", data.of_epoch(1)).after("b", data.of_epoch(0))
    assert begun.records == 30
    assert begun.chain != position["chain"]


def test_a_dataset_that_changed_in_the_middle_is_refused(stream, followed):
    stream.add(10, 20)
    data = followed()
    assert data.wait(0, PATIENCE)
    [kept] = data.identities(0, is_begun=True)
    stream.records[str(stream.root / "000")] = 11
    with pytest.raises(UserError, match=r"000 is not what it was when the last checkpoint"):
        followed(position_of([kept]))


def test_a_run_resumes_though_the_datasets_before_are_deleted(stream, followed):
    stream.add(10, 20, 30)
    data = followed()
    assert data.wait(2, PATIENCE)
    kept = data.identities(2)
    for name in ("000", "001"):
        (stream.root / name / "manifest.json").unlink()
        stream.wrong.add(str(stream.root / name))
    again = followed(position_of(kept))
    assert again.wait(2, PATIENCE)
    assert again.records_before(3) == 60


def test_a_damaged_dataset_is_set_aside_and_told_of(stream, followed, caplog):
    stream.add(10, 20, 30)
    stream.wrong.add(str(stream.root / "001"))
    data = followed()
    assert data.wait(1, PATIENCE)
    assert [data.of_epoch(k).records for k in (0, 1)] == [10, 30]
    assert data.not_taken == 1
    assert data.notes == [
        f"{stream.root}/001 is set aside: {stream.root}/001 is damaged",
    ]
    assert data.notes[0] in caplog.text


def test_three_in_a_row_that_cannot_be_trained_end_the_run(stream, followed):
    stream.add(10, 20, 30, 40)
    stream.wrong.update(str(stream.root / f"{k:03}") for k in (1, 2, 3))
    data = followed()
    with pytest.raises(UserError, match=r"3 datasets in a row cannot be trained, .*003 is damaged"):
        data.wait(1, PATIENCE)


def test_the_first_is_waited_for_with_a_limit(stream):
    with pytest.raises(UserError, match=r"did not appear within 0 s"):
        stream.follow(seconds=0.0)


def test_what_is_kept_does_not_grow_with_the_datasets(stream, followed):
    """200 go by; what is known of them stays as long as it was after the first few."""
    stream.add(*[10] * 20)
    data, sizes = followed(), set()
    for number in range(200):
        if number % 20 == 10:
            stream.add(*[10] * 20)
        data.shards_of(number)
        assert data.wait(number, PATIENCE)
        data.saved(number)
        kept = data.identities(number)
        sizes.add(len(json.dumps(kept)) - len(str(kept[0]["chain"])))
        assert len(data.datasets) <= 3
    assert max(sizes) - min(sizes) < 10


def test_positions_are_equal_whoever_computed_them(stream):
    stream.add(10)
    data = stream.read(str(stream.root / "000"))
    copied = dataclasses.replace(data, directory="elsewhere")
    assert Position().after("x", data) == Position().after("x", copied)
