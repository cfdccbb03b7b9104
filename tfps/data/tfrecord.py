"""Reads a TFRecord file record by record and says where and why one cannot be read.

TensorFlow's own reader stops at the first bad record without its number, and does not notice a
truncated file.

A record follows its length (8 bytes, little-endian) and the length's checksum (4), and precedes its
own checksum (4). Checksums are crc32c, masked as
https://www.tensorflow.org/tutorials/load_data/tfrecord says.
"""

import functools
import struct
import zlib
from collections.abc import Iterator
from typing import IO, Any, Literal, NamedTuple, cast

import google_crc32c
import tensorflow as tf

HEADER_BYTES = 12
FOOTER_BYTES = 4
HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_MASK_DELTA = 0xA282EAD8
Compression = Literal["", "GZIP", "ZLIB"]


def frame(record: bytes) -> bytes:
    """A record with its header and footer, as a file holds it."""
    return b"".join((_header(len(record)), record, FOOTER.pack(masked_crc(record))))


def masked_crc(data: bytes) -> int:
    """The checksum that a TFRecord file holds of some bytes."""
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


@functools.lru_cache(maxsize=4096)
def length_crc(length: int) -> int:
    """The checksum of a record's length; most records of a file have one of a few lengths."""
    return masked_crc(_LENGTH.pack(length))


@functools.lru_cache(maxsize=4096)
def _header(length: int) -> bytes:
    return HEADER.pack(length, length_crc(length))


_READ_BYTES = 4 << 20
_GZIP_MAGIC = b"\x1f\x8b"


class StoredRecord(NamedTuple):
    """A record of a file, or what is in its place."""

    number: int  # in the file, from 0
    offset: int  # byte at which it begins; of what is decompressed in a compressed file
    data: bytes | None  # None where the record's end is unknown, which ends the scan
    problem: str  # what to say after the record's name; empty for a good one

    @property
    def next_offset(self) -> int:
        return self.offset + HEADER_BYTES + len(self.data or b"") + FOOTER_BYTES


def scan(
    path: str,
    compression: str = "",
    number: int = 0,
    offset: int = 0,
    read_bytes: int = _READ_BYTES,
) -> Iterator[StoredRecord]:
    """Reads all records of a file from one on, at byte `offset`, and checks both checksums of each.

    Nothing follows a record whose length is damaged, or at which the file ends.
    """
    with tf.io.gfile.GFile(path, "rb") as opened:
        raw = cast(IO[bytes], opened)
        file = _Buffered(
            _Decompressed(raw, compression) if compression else raw, offset, read_bytes
        )
        while header := file.read(HEADER_BYTES):
            record = _record(file, header, number, offset)
            yield record
            if record.data is None:
                return
            number += 1
            offset = record.next_offset
        if file.problem:
            yield StoredRecord(number, offset, None, file.problem)


def compression_of(path: str) -> Compression:
    """How a file is compressed, by its first bytes: "", "GZIP" or "ZLIB"."""
    with tf.io.gfile.GFile(path, "rb") as file:
        head = file.read(HEADER_BYTES)
    if len(head) == HEADER_BYTES:
        length, crc = HEADER.unpack(head)
        if length_crc(length) == crc:
            return ""
    if head.startswith(_GZIP_MAGIC):
        return "GZIP"
    is_zlib = len(head) > 2 and head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0
    return "ZLIB" if is_zlib else ""


def _record(file: "_Buffered", header: bytes, number: int, offset: int) -> StoredRecord:
    if len(header) < HEADER_BYTES:
        return StoredRecord(number, offset, None, file.problem or _truncated(len(header)))
    length, crc = HEADER.unpack(header)
    if length_crc(length) != crc:
        return StoredRecord(
            number, offset, None, "has a length that does not fit the length's checksum"
        )
    rest = file.read(length + FOOTER_BYTES)
    if len(rest) < length + FOOTER_BYTES:
        problem = file.problem or _truncated(HEADER_BYTES + len(rest))
        return StoredRecord(number, offset, None, problem)
    data = rest[:length]
    good = FOOTER.unpack_from(rest, length)[0] == masked_crc(data)
    return StoredRecord(number, offset, data, "" if good else "does not fit its checksum")


def _truncated(held: int) -> str:
    return f"is cut off: the file ends after {held} bytes of it"


class _Buffered:
    """Reads a stream of bytes in blocks; `problem` says why it ended too early."""

    def __init__(self, stream: Any, skip: int, read_bytes: int):
        self.problem = ""
        self._read_bytes = read_bytes
        self._stream = stream
        self._block = b""
        self._at = 0
        if skip:
            stream.seek(skip)

    def read(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._block):
            parts = [self._block[self._at :]]
            missing = end - len(self._block)
            while missing > 0 and (part := self._next(missing)):
                parts.append(part)
                missing -= len(part)
            self._block, self._at, end = b"".join(parts), 0, size
        data = self._block[self._at : end]
        self._at = min(end, len(self._block))
        return data

    def _next(self, least: int) -> bytes:
        try:
            return bytes(self._stream.read(max(self._read_bytes, min(least, 16 * _READ_BYTES))))
        except (EOFError, zlib.error) as error:
            self.problem = f"cannot be decompressed ({error})"
            return b""


class _Decompressed:
    """A compressed file's content; `GzipFile` loses what it read ahead of an early end."""

    def __init__(self, file: IO[bytes], compression: str):
        self._file = file
        self._window_bits = zlib.MAX_WBITS + (16 if compression == "GZIP" else 0)
        self._inflate = zlib.decompressobj(self._window_bits)
        self._compressed = b""

    def read(self, size: int) -> bytes:
        while True:
            compressed = self._compressed or self._file.read(_READ_BYTES)
            if self._inflate.eof:
                if not compressed:
                    return b""
                # gzip files may stand one after the other
                self._inflate = zlib.decompressobj(self._window_bits)
            data = self._inflate.decompress(compressed, size)
            self._compressed = self._inflate.unconsumed_tail or self._inflate.unused_data
            if data:
                return data
            if not compressed and not self._inflate.eof:
                raise EOFError("it ends before its end-of-stream marker")

    def seek(self, offset: int) -> None:
        while offset and (data := self.read(min(offset, _READ_BYTES))):
            offset -= len(data)
