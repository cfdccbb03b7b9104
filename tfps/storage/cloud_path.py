"""Paths in Google Cloud Storage: `gs://BUCKET/NAME`."""

SCHEME = "gs://"


def is_cloud(path: str) -> bool:
    """Whether a path names something in Google Cloud Storage."""
    return path.startswith(SCHEME)


def split(path: str) -> tuple[str, str]:
    """Bucket and object's name of a `gs://` path; both may be empty."""
    bucket, _, name = path.removeprefix(SCHEME).partition("/")
    return bucket, name
