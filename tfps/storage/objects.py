"""Objects of Google Cloud Storage, beyond what TensorFlow's files offer.

Requests are retried for `_RETRY_SECONDS`; no single one waits longer than `TIMEOUT`.
"""

import base64
import dataclasses
import errno
import functools
import logging
import os
import posixpath
import threading
from collections.abc import Sequence
from typing import Any

import google.auth
import google.auth.compute_engine
import google.auth.credentials
import google.auth.exceptions
import google.oauth2.credentials
import google.oauth2.service_account
import requests
from google.api_core import exceptions, retry
from google.cloud import storage

from tfps.errors import RunError, UserError
from tfps.storage.paths import CLOUD_SCHEME, bucket_and_name, is_cloud

_lock = threading.Lock()
_count = 0
TIMEOUT = (10.0, 30.0)  # to connect, and between two bytes; seconds
_TRANSIENT = (requests.Timeout, exceptions.BadGateway, exceptions.GatewayTimeout)
FAILURES = (
    exceptions.GoogleAPIError,
    google.auth.exceptions.GoogleAuthError,
    requests.RequestException,
)
_TRIED_SECONDS = 20.0
_READ = ("storage.objects.get", "storage.objects.list")
_WRITE = ("storage.objects.create", "storage.objects.delete")
_MULTI_REGIONS = {"us": "us-", "eu": "europe-", "asia": "asia-"}
_log = logging.getLogger(__name__)
# What Vertex AI says of where a job runs; set it elsewhere to have locations compared.
REGION_VARIABLE = "CLOUD_ML_REGION"


def add(error: Exception) -> None:
    """Counts a retry; `google.api_core.retry` calls it."""
    global _count
    with _lock:
        _count += 1


def count() -> int:
    """The retries so far."""
    return _count


_RETRY_SECONDS = 180.0  # as long as TensorFlow's client with `settings`


@dataclasses.dataclass(frozen=True)
class StoredObject:
    """An object in a listing."""

    bytes: int
    generation: int
    crc32c: str  # of its content, 8 hexadecimal digits


@functools.cache
def credentials() -> google.auth.credentials.Credentials:
    """Google's application default credentials of this process."""
    found, _ = google.auth.default(["https://www.googleapis.com/auth/devstorage.read_write"])
    return found


@functools.cache
def client() -> storage.Client:
    # Nothing that is done here needs a project.
    return storage.Client(project=None, credentials=credentials())


def retrying(seconds: float = _RETRY_SECONDS) -> retry.Retry:
    """How to retry a request; `count` counts the retries."""
    return retry.Retry(
        predicate=lambda error: retry.if_transient_error(error) or isinstance(error, _TRANSIENT),
        initial=0.25,
        maximum=8.0,
        timeout=seconds,
        on_error=add,
    )


def list_objects(directory: str, deeply: bool = False) -> dict[str, StoredObject]:
    """The objects directly in a directory by name, or all below by path; 1,000 a request."""
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
    """Names of the directories directly in a directory: those with an object below."""
    prefix = _prefix(directory)
    try:
        blobs = _blobs(directory, "/", "prefixes,nextPageToken")
        for _ in blobs:
            pass
        return sorted(each.removeprefix(prefix).rstrip("/") for each in blobs.prefixes)
    except FAILURES as error:
        raise explain(error, directory) from None


def read(path: str) -> bytes:
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
    """A checksum of Google's client in 8 hexadecimal digits."""
    return base64.b64decode(crc32c).hex()


def explain(error: Exception, where: str) -> UserError | RunError:
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
    return RunError(
        f"{where} cannot be reached: {_cause(error)}; when it answers again, rerun the same command"
    )


def _cause(error: Any) -> str:
    """The first line of the error behind the retries, without the address and its query."""
    error = getattr(error, "cause", None) or error
    if isinstance(error, exceptions.GoogleAPICallError):
        return f"{error.code} {error.response.reason if error.response is not None else ''}".strip()
    return type(error).__name__


# TensorFlow's client cannot use any other.
_KINDS = (
    google.auth.compute_engine.Credentials,
    google.oauth2.credentials.Credentials,
    google.oauth2.service_account.Credentials,
)


def check_bucket(name: str, where: str, writes: bool, region: str) -> None:
    """Refuses a bucket that cannot be used, in seconds; warns of one in another region.

    `region` is this process's, such as "us-central1"; empty when it is not known.
    """
    if not name:
        raise UserError(f"{where} names no bucket; write gs://BUCKET/PATH")
    wanted = (*_READ, *_WRITE) if writes else _READ
    try:
        _check_kind(credentials(), where)
        bucket = client().bucket(name)
        held = bucket.test_iam_permissions(wanted, timeout=TIMEOUT, retry=retrying(_TRIED_SECONDS))
    except FAILURES as error:
        raise explain(error, where) from None
    if missing := [permission for permission in wanted if permission not in held]:
        role = "objectAdmin" if writes else "objectViewer"
        raise UserError(
            f"{where}: the credentials lack {', '.join(missing)} on the bucket {name!r}; grant "
            f"their account roles/storage.{role} there"
        )
    if region and (far := distance(name, where, region)):
        _log.warning("%s", far)


def _check_kind(credentials: object, where: str) -> None:
    if not isinstance(credentials, _KINDS):
        raise UserError(
            f"{where}: TensorFlow's gs:// client cannot use credentials of the kind "
            f"{type(credentials).__module__}; use a service account's key file, those of `gcloud "
            "auth application-default login`, or run under a service account"
        )


def distance(name: str, where: str, region: str) -> str:
    """A warning about a bucket in another region; empty if near, or the role may not ask."""
    try:
        bucket = client().bucket(name)
        bucket.reload(timeout=TIMEOUT, retry=retrying(_TRIED_SECONDS))
    except exceptions.Forbidden:
        return ""  # buckets.get is in none of the roles that training needs
    except FAILURES as error:
        raise explain(error, where) from None
    location = str(bucket.location or "").lower()
    if bucket.location_type == "dual-region" or location == region:
        return ""
    if location in _MULTI_REGIONS and region.startswith(_MULTI_REGIONS[location]):
        return ""
    return (
        f"{where}: the bucket lies in {location}, but this job runs in {region}: every byte read "
        f"crosses regions, slowly and for a charge; use a bucket in {region}"
    )


@dataclasses.dataclass(frozen=True)
class Use:
    """The use of a path; only those on gs:// are checked."""

    flag: str
    path: str
    writes: bool = False  # whether objects are made and deleted there, or only read


def check(uses: Sequence[Use]) -> None:
    """Checks once for each bucket that this process may use it as planned."""
    buckets: dict[str, list[Use]] = {}
    for use in uses:
        if is_cloud(use.path):
            buckets.setdefault(bucket_and_name(use.path)[0], []).append(use)
    for bucket, its in buckets.items():
        writer = next((use for use in its if use.writes), its[0])
        where = f"{writer.flag}={writer.path}"
        check_bucket(bucket, where, writer.writes, os.environ.get(REGION_VARIABLE, ""))
