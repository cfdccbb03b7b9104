"""Writes files that appear under their names once they are whole."""

import os
import posixpath

import tensorflow as tf

from tfps.storage import failures, local_files
from tfps.storage.paths import is_local


def write(path: str, content: str | bytes, suffix: str = "tmp") -> None:
    """Writes a file, in place of one that is there; after a power cut it is whole, or the old one.

    Args:
        suffix: Behind the path while the file is written; another one for each of several tasks
            that may write it at the same time.
    """
    whole = content.encode() if isinstance(content, str) else content
    temporary = f"{path}.{suffix}"

    def put() -> None:
        if is_local(path):
            local_files.write(temporary, whole)
            os.replace(temporary, path)
            local_files.sync(posixpath.dirname(path))
        else:
            with tf.io.gfile.GFile(temporary, "wb") as file:
                file.write(whole)
            tf.io.gfile.rename(temporary, path, overwrite=True)

    failures.attempt_change("written", path, put)
