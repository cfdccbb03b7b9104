"""How a record stands in a TFRecord file.

Its length (8 bytes, little-endian), the length's checksum (4), the record, its checksum (4).
Checksums are crc32c, masked as https://www.tensorflow.org/tutorials/load_data/tfrecord says.
"""

import functools
import struct

import google_crc32c

HEADER_BYTES = 12
FOOTER_BYTES = 4
HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_MASK_DELTA = 0xA282EAD8


def frame(record: bytes) -> bytes:
    """A record as it stands in a file."""
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
