"""The crc32c of files and bytes, in 8 hexadecimal digits, as manifests hold it."""

import google_crc32c
import tensorflow as tf

_CHUNK_BYTES = 1 << 22


def of_bytes(content: bytes) -> str:
    """The checksum of some bytes."""
    return _hexadecimal(google_crc32c.Checksum(content))


def of_file(path: str) -> str:
    """The checksum of a whole file."""
    crc = google_crc32c.Checksum()
    with tf.io.gfile.GFile(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc.update(chunk)
    return _hexadecimal(crc)


def _hexadecimal(crc: google_crc32c.Checksum) -> str:
    return str(crc.hexdigest().decode("ascii"))
