import gzip
import zlib
from pathlib import Path

import pytest
import tensorflow as tf

from tfps.data.tfrecord import StoredRecord, compression_of, frame, scan

RECORDS = [b"first", b"", b"third" * 300, b"x" * 9_000_000, b"last"]


def written(path: Path, compression: str, records: list[bytes] = RECORDS) -> str:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return str(path)


def problems(path: str, compression: str = "") -> list[tuple[int, int, str]]:
    return [(r.number, r.offset, r.problem) for r in scan(path, compression) if r.problem]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_what_tensorflow_writes_is_read(tmp_path: Path, compression: str) -> None:
    path = written(tmp_path / "data", compression)
    assert compression_of(path) == compression
    found = list(scan(path, compression))
    assert [record.data for record in found] == RECORDS
    assert [record.offset for record in found] == [0, 21, 37, 1553, 9_001_569]
    assert [record.number for record in found] == [0, 1, 2, 3, 4]
    assert not any(record.problem for record in found)
    assert list(scan(path, compression, 3, 1553)) == found[3:]


def test_what_is_framed_is_what_tensorflow_writes(tmp_path: Path) -> None:
    path = written(tmp_path / "data", "", RECORDS)
    assert Path(path).read_bytes() == b"".join(map(frame, RECORDS))


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    path = written(tmp_path / "data", "", [])
    assert (compression_of(path), list(scan(path))) == ("", [])


def test_a_changed_byte_spoils_one_record(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "data", "", [b"one", b"two", b"three"]))
    content = bytearray(path.read_bytes())
    content[19 + 13] ^= 1
    path.write_bytes(content)
    assert problems(str(path)) == [(1, 19, "does not fit its checksum")]
    assert [record.number for record in scan(str(path))] == [0, 1, 2]


def test_a_changed_length_ends_the_scan(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "data", "", [b"one", b"two", b"three"]))
    content = bytearray(path.read_bytes())
    content[19] ^= 1
    path.write_bytes(content)
    end = StoredRecord(1, 19, None, "has a length that does not fit the length's checksum")
    assert list(scan(str(path)))[1:] == [end]


@pytest.mark.parametrize(("kept", "held"), [(21, 2), (33, 14), (37, 18)])
def test_a_truncated_file(tmp_path: Path, kept: int, held: int) -> None:
    path = Path(written(tmp_path / "data", "", [b"one", b"two", b"three"]))
    path.write_bytes(path.read_bytes()[:kept])
    assert problems(str(path)) == [(1, 19, f"is cut off: the file ends after {held} bytes of it")]


@pytest.mark.parametrize(
    ("compression", "compress"), [("GZIP", gzip.compress), ("ZLIB", zlib.compress)]
)
def test_a_truncated_compressed_file(tmp_path: Path, compression: str, compress) -> None:
    whole = compress(b"".join(map(frame, [b"one", b"two"] * 50)))
    path = tmp_path / "data"
    path.write_bytes(whole[:-3])
    [(number, offset, problem)] = problems(str(path), compression)
    assert (number, offset) == (100, 1900)
    assert problem.startswith("cannot be decompressed (")


def test_a_text_file_is_no_records(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("age,income\n39,<=50K\n")
    assert compression_of(str(tmp_path / "data")) == ""
    assert problems(str(tmp_path / "data")) == [
        (0, 0, "has a length that does not fit the length's checksum")
    ]
