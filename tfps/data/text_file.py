"""Opens a file of rows, gzip or not, and says what is wrong with it."""

import codecs
import contextlib
import gzip
import zlib
from collections.abc import Iterator
from typing import IO, cast

import tensorflow as tf

from tfps.errors import UserError
from tfps.storage import files


@contextlib.contextmanager
def text_file(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Opens a file behind its byte order mark; also for what goes wrong while it is read.

    Args:
        path: A file, local or `gs://`; gzip when it ends in `.gz`.
    """
    if files.is_directory(path):
        raise UserError(f"{path} is a directory, not a file of rows")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            raw = cast(IO[bytes], file)
            content = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if path.endswith(".gz") else raw)
            if content.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
                content.seek(0)
            yield content, raw
    except tf.errors.NotFoundError:
        raise UserError(f"{path}: no such file") from None
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not a whole gzip file: {error}") from None
