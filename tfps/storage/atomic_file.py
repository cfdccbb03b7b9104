"""Writes files that appear under their names once they are whole."""

from tfps.storage import files


def write(path: str, content: str | bytes, suffix: str = "tmp") -> None:
    """Writes a file, in place of one that is there; after a power cut it is whole, or the old one.

    Args:
        path: Of the file, local or `gs://`.
        content: All of it.
        suffix: Behind the path while the file is written; another one for each of several tasks
            that may write it at the same time.

    Raises:
        StorageError: If it cannot be written.
    """
    whole = content.encode() if isinstance(content, str) else content
    files.write_whole(path, whole, f"{path}.{suffix}")
