"""Ways to corrupt records, and other files."""

import pathlib

from tfps.data.tfrecord import scan

LENGTH, DATA = 0, 12  # bytes of a record's frame


def of_another_type(feature):
    """Integers where the payload's floats should be."""
    feature["payload"].int64_list.value.append(1)


def without_a_feature(feature):
    """No payload."""
    del feature["payload"]


def with_an_id_outside(feature):
    """A record's number that is no row of any table."""
    feature["record"].int64_list.value[0] = 1 << 40


def flip_bit(path, position):
    """Changes a bit of the byte at a position of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def flip(path, numbers, byte):
    """Changes a byte of some records' frames, `LENGTH` or `DATA`; returns where each begins."""
    offsets = [record.offset for record in scan(str(path))]
    content = bytearray(pathlib.Path(path).read_bytes())
    for number in numbers:
        content[offsets[number] + byte] ^= 0xFF
    pathlib.Path(path).write_bytes(content)
    return [offsets[number] for number in numbers]
