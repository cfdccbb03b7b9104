import gzip
import zlib
from pathlib import Path

import pytest
import tensorflow as tf

from tfps.data import bad_record
from tfps.data.record_frame import frame
from tfps.feature import Feature

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


def test_good_records(tmp_path: Path) -> None:
    path = write(tmp_path / "a", record(), record(tags=int64s(4, 0)), record(tags=None))
    assert bad_record.find(path, "", FEATURES, 3) == []


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
    ],
)
def test_records_that_do_not_fit_the_features(tmp_path: Path, changes, reason: str) -> None:
    path = write(tmp_path / "a", record(), record(**changes), record(), b"\xff")
    size = len(frame(record()))
    found = bad_record.find(path, "", FEATURES, 4)
    assert str(found[0]) == f"record 1 (byte {size}) {reason}"
    assert str(found[1]).endswith("is no tf.train.Example")
    assert len(found) == 2
    assert bad_record.find(path, "", FEATURES, 4, found[1].number, found[1].offset) == found[1:]
    assert bad_record.find(path, "", FEATURES, 1) == []


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_records_that_are_damaged(tmp_path: Path, compression: str) -> None:
    content = bytearray(b"".join(map(frame, [record()] * 5)))
    size = len(content) // 5
    content[size + 20] ^= 1
    content[4 * size] ^= 1
    path = str(tmp_path / "a")
    Path(path).write_bytes(COMPRESS[compression](content))
    assert [str(bad) for bad in bad_record.find(path, compression, FEATURES, 5)] == [
        f"record 1 (byte {size}) does not fit its checksum",
        f"record 4 (byte {4 * size}) has a length that does not fit the length's checksum",
    ]


def test_records_that_are_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "a", record(), record())
    [bad] = bad_record.find(path, "", FEATURES, 5)
    assert (bad.number, bad.offset) == (2, 2 * len(frame(record())))
    assert bad.reason == "is missing: the manifest says the file holds 5 or more"
