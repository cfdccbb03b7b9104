"""Local and gs:// paths as text; it loads no TensorFlow."""

import os
import posixpath

CLOUD_SCHEME = "gs://"


def is_local(path: str) -> bool:
    """Whether the operating system serves a path."""
    return "://" not in path


def is_cloud(path: str) -> bool:
    """Whether a path names something in Google Cloud Storage: `gs://BUCKET/NAME`."""
    return path.startswith(CLOUD_SCHEME)


def canonical(path: str) -> str:
    """The one spelling of a path: absolute, without links, `.`, `..` and double slashes."""
    if is_local(path):
        return os.path.realpath(path)
    scheme, _, rest = path.partition("://")
    return f"{scheme}://{posixpath.normpath(rest)}"


def bucket_and_name(path: str) -> tuple[str, str]:
    """Bucket and object's name of a `gs://` path; both may be empty."""
    bucket, _, name = path.removeprefix(CLOUD_SCHEME).partition("/")
    return bucket, name


def is_file_name(name: object) -> bool:
    """Whether a value is the name of a file in any directory.

    Paths are joined of a directory and a name from a file. A name with a separator would leave the
    directory, an absolute one replace it, and the operating system stops reading at a NUL.
    """
    return isinstance(name, str) and name not in ("", ".", "..") and not {"/", "\0"} & set(name)
