import gzip
import zlib
from pathlib import Path

import pytest
import tensorflow as tf

from tfps.data import bad_records
from tfps.data.bad_records import BadRecord
from tfps.data.feature import Feature
from tfps.data.record_source import RecordSource
from tfps.data.tfrecord import frame

FEATURES = (
    Feature("numbers", "float32", (2,)),
    Feature("token", "int64", (), 20),
    Feature("tags", "int64", (None,), 5),
)
COMPRESS = {"": bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}


def int64s(*values: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def floats(*values: float) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def record(**changes: tf.train.Feature | None) -> bytes:
    held = {"numbers": floats(1.0, 2.0), "token": int64s(19), "tags": int64s(), **changes}
    features = {name: value for name, value in held.items() if value}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write(path: Path, *records: bytes) -> str:
    path.write_bytes(b"".join(map(frame, records)))
    return str(path)


def find(source: RecordSource, first: int = 0, end: int = 0) -> list[BadRecord]:
    return bad_records.find(source, FEATURES, first, end or source.end)


def test_good_records(tmp_path: Path) -> None:
    path = write(tmp_path / "a", record(), record(tags=int64s(4, 0)), record(tags=None))
    assert find(RecordSource(path, end=3)) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"token": int64s(20)}, "holds the id 20 in 'token', outside [0, 20)"),
        ({"token": int64s(-1)}, "holds the id -1 in 'token', outside [0, 20)"),
        ({"tags": int64s(0, 5, 1)}, "holds the id 5 in 'tags', outside [0, 5)"),
        ({"tags": floats(1.0)}, "holds floats in 'tags', not int64"),
        ({"token": floats(1.0)}, "holds floats in 'token', not int64"),
        ({"numbers": floats(1.0)}, "holds 1 values in 'numbers', not 2"),
        ({"numbers": None}, "has no 'numbers' (it has tags, token)"),
        ({"numbers": tf.train.Feature()}, "has no value in 'numbers'"),
    ],
)
def test_records_that_do_not_fit_the_features(tmp_path: Path, changes, reason: str) -> None:
    path = write(tmp_path / "a", record(), record(**changes), record(), b"\xff")
    size, bad_size = len(frame(record())), len(frame(record(**changes)))
    source = RecordSource(path, end=4)
    first, second = find(source)
    assert str(first) == f"record 1 (byte {size}) {reason}"
    assert (first.records, first.next_offset) == (1, size + bad_size)
    assert str(second).endswith("is no tf.train.Example")
    told = f"{first}; it is the first of 2 bad records there"
    assert bad_records.describe([first, second]).startswith(told)
    assert find(source, 2) == [second]  # the first one was only in the way, and its frame is good
    assert find(source, 0, 1) == []
    assert find(source._replace(bad_ranges=((1, 1, first.next_offset),))) == [second]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_records_that_are_damaged(tmp_path: Path, compression: str) -> None:
    content = bytearray(b"".join(map(frame, [record()] * 5)))
    size = len(content) // 5
    content[size + 20] ^= 1
    content[3 * size] ^= 1
    path = str(tmp_path / "a")
    Path(path).write_bytes(COMPRESS[compression](content))
    assert find(RecordSource(path, compression, end=5)) == [
        BadRecord(1, size, "does not fit its checksum", 1, 2 * size),
        BadRecord(3, 3 * size, "has a length that does not fit the length's checksum", 2, 0),
    ]
    [in_the_way] = find(RecordSource(path, compression, end=5), 2, 3)
    assert in_the_way.number == 1


def test_behind_a_damaged_length_reading_goes_on_where_a_record_is_known_to_begin(
    tmp_path: Path,
) -> None:
    content = bytearray(b"".join(map(frame, [record()] * 12)))
    size = len(content) // 12
    for number in (1, 6, 9):
        content[number * size] ^= 1
    (tmp_path / "a").write_bytes(content)
    source = RecordSource(str(tmp_path / "a"), "", (0, 4 * size, 8 * size), 0, 4, 12)
    ranges = [(bad.number, bad.records, bad.next_offset) for bad in find(source)]
    assert ranges == [(1, 3, 4 * size), (6, 2, 8 * size), (9, 3, 0)]
    assert [bad.number for bad in find(source, 3, 6)] == [1]
    assert [bad.number for bad in find(source, 4, 6)] == []
    assert [bad.number for bad in find(source, 7, 9)] == [6]


@pytest.mark.parametrize("cut", [0, 7, 13])
def test_records_that_are_missing(tmp_path: Path, cut: int) -> None:
    """Also those of which it is known where they would begin."""
    size = len(frame(record()))
    path = write(tmp_path / "a", *[record()] * 2)
    with open(path, "ab") as file:
        file.write(frame(record())[:cut])
    for entries in (1, 3):
        source = RecordSource(path, "", (0, 2 * size, 4 * size)[:entries], 0, 2, 6)
        [bad] = find(source)
        assert (bad.number, bad.offset, bad.records, bad.next_offset) == (2, 2 * size, 4, 0)
        assert bad.reason == (
            f"is cut off: the file ends after {cut} bytes of it"
            if cut
            else "is missing: the manifest says the file holds 6 or more"
        )
        assert find(source, 0, 2) == []


def test_a_record_that_lacks_a_feature_is_told_with_the_way_out() -> None:
    bad = BadRecord(3, 90, "has no 'age' (it has user)")
    assert bad_records.describe([bad]) == f"{bad}; tfps.Feature(default=…) says what it counts as"
