"""A file of a dataset."""

import dataclasses

COMPRESSIONS = ("", "GZIP", "ZLIB")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One TFRecord file.

    Attributes:
        file: Its name in the dataset's directory.
        records: How many it holds.
        bytes: Its size.
        crc32c: Checksum of the whole file, 8 hexadecimal digits.
        compression: One of `COMPRESSIONS`, as `tf.data.TFRecordDataset` names them.
        generation: The object's on gs://, which changes when it is written again; 0 for a file.
    """

    file: str
    records: int
    bytes: int
    crc32c: str
    compression: str = ""
    generation: int = 0
