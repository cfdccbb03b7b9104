"""Writes files that appear under their names once they are whole."""

import tensorflow as tf


def write(path: str, content: str | bytes, suffix: str = "tmp") -> None:
    """Writes a file, in place of one that is there.

    Args:
        path: Of the file, local or `gs://`.
        content: All of it.
        suffix: Behind the path while the file is written; another one for each of several tasks
            that may write it at the same time.

    Raises:
        tf.errors.OpError: If it cannot be written.
    """
    temporary = f"{path}.{suffix}"
    with tf.io.gfile.GFile(temporary, "wb") as file:
        file.write(content)
    tf.io.gfile.rename(temporary, path, overwrite=True)
