"""Objects of Google Cloud Storage: what TensorFlow's files do not tell, or only one by one.

Requests are retried for `_RETRY_SECONDS`; no single one waits longer than `TIMEOUT`.
"""

import base64
import dataclasses
import errno
import functools
import os
import posixpath
from typing import Any

import google.auth
import google.auth.credentials
import google.auth.exceptions
import requests
from google.api_core import exceptions, retry
from google.cloud import storage

from tfps.errors import UserError
from tfps.storage import retries
from tfps.storage.paths import CLOUD_SCHEME, bucket_and_name

TIMEOUT = (10.0, 30.0)  # to connect, and between two bytes; seconds
_RETRY_SECONDS = 180.0  # as long as TensorFlow's client with `settings`
_TRANSIENT = (requests.Timeout, exceptions.BadGateway, exceptions.GatewayTimeout)
FAILURES = (
    exceptions.GoogleAPIError,
    google.auth.exceptions.GoogleAuthError,
    requests.RequestException,
)


@dataclasses.dataclass(frozen=True)
class StoredObject:
    """What a listing says of an object.

    Attributes:
        crc32c: Checksum of its content, 8 hexadecimal digits.
    """

    bytes: int
    generation: int
    crc32c: str


@functools.cache
def credentials() -> google.auth.credentials.Credentials:
    """The credentials of this process: Google's application default credentials."""
    found, _ = google.auth.default(["https://www.googleapis.com/auth/devstorage.read_write"])
    return found


@functools.cache
def client() -> storage.Client:
    """The client of this process."""
    # Nothing that is done here needs a project.
    return storage.Client(project=None, credentials=credentials())


def retrying(seconds: float = _RETRY_SECONDS) -> retry.Retry:
    """How to retry a request; `retries` counts it."""
    return retry.Retry(
        predicate=lambda error: retry.if_transient_error(error) or isinstance(error, _TRANSIENT),
        initial=0.25,
        maximum=8.0,
        timeout=seconds,
        on_error=retries.add,
    )


def list_objects(directory: str, deeply: bool = False) -> dict[str, StoredObject]:
    """Lists a directory, a thousand objects per request.

    Returns:
        The objects right in it, by name; or all below, by path from there.
    """
    prefix = _prefix(directory)
    fields = "items(name,size,generation,crc32c),nextPageToken"
    try:
        return {
            blob.name.removeprefix(prefix): StoredObject(
                int(blob.size), int(blob.generation), hexadecimal(blob.crc32c)
            )
            for blob in _blobs(directory, None if deeply else "/", fields)
        }
    except FAILURES as error:
        raise explain(error, directory) from None


def list_directories(directory: str) -> list[str]:
    """Names of the directories right in a directory: those that have an object below them."""
    prefix = _prefix(directory)
    try:
        blobs = _blobs(directory, "/", "prefixes,nextPageToken")
        for _ in blobs:
            pass
        return sorted(each.removeprefix(prefix).rstrip("/") for each in blobs.prefixes)
    except FAILURES as error:
        raise explain(error, directory) from None


def read(path: str) -> bytes:
    """All of an object."""
    bucket, name = bucket_and_name(path)
    try:
        content = client().bucket(bucket).blob(name)
        return bytes(content.download_as_bytes(timeout=TIMEOUT, retry=retrying()))
    except exceptions.NotFound:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except FAILURES as error:
        raise explain(error, path) from None


def _prefix(directory: str) -> str:
    _, name = bucket_and_name(directory)
    return posixpath.join(name, "") if name else ""


def _blobs(directory: str, delimiter: str | None, fields: str) -> Any:
    bucket, _ = bucket_and_name(directory)
    return client().list_blobs(
        bucket,
        prefix=_prefix(directory),
        delimiter=delimiter,
        fields=fields,
        timeout=TIMEOUT,
        retry=retrying(),
    )


def hexadecimal(crc32c: str) -> str:
    """A checksum as Google's client gives it, in 8 hexadecimal digits."""
    return base64.b64decode(crc32c).hex()


def explain(error: Exception, where: str) -> UserError:
    """An error of the client in a person's words."""
    if isinstance(error, google.auth.exceptions.DefaultCredentialsError):
        return UserError(
            f"{where}: there are no Google Cloud credentials; run `gcloud auth application-default "
            "login`, set GOOGLE_APPLICATION_CREDENTIALS to a service account's key file, or run "
            "under a service account"
        )
    if isinstance(error, google.auth.exceptions.RefreshError | exceptions.Unauthorized):
        return UserError(
            f"{where}: Google Cloud refuses the credentials; get new ones with `gcloud auth "
            "application-default login`, or look whether the service account's key is still valid"
        )
    bucket, _ = bucket_and_name(where[where.index(CLOUD_SCHEME) :])
    if isinstance(error, exceptions.NotFound):
        return UserError(
            f"{where}: there is no bucket {bucket!r}; correct the name, or make it with `gcloud "
            f"storage buckets create gs://{bucket}`"
        )
    if isinstance(error, exceptions.Forbidden):
        return UserError(
            f"{where}: the credentials may not use the bucket {bucket!r}; grant their account "
            "roles/storage.objectViewer to read and roles/storage.objectAdmin to write there"
        )
    return UserError(f"{where} cannot be reached: {_cause(error)}")


def _cause(error: Any) -> str:
    """The first line of what lies behind the retries, without the address and its query."""
    error = getattr(error, "cause", None) or error
    if isinstance(error, exceptions.GoogleAPICallError):
        return f"{error.code} {error.response.reason if error.response is not None else ''}".strip()
    return f"{type(error).__name__}"
