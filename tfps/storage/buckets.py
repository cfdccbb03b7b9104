"""Asks a bucket what this process may do with it."""

import logging

import google.auth.compute_engine
import google.auth.credentials
import google.oauth2.credentials
import google.oauth2.service_account
from google.api_core import exceptions

from tfps.errors import UserError
from tfps.storage import objects

_RETRY_SECONDS = 20.0
_READ = ("storage.objects.get", "storage.objects.list")
_WRITE = ("storage.objects.create", "storage.objects.delete")
_MULTI_REGIONS = {"us": "us-", "eu": "europe-", "asia": "asia-"}
# TensorFlow's client cannot use any other.
_KINDS = (
    google.auth.compute_engine.Credentials,
    google.oauth2.credentials.Credentials,
    google.oauth2.service_account.Credentials,
)
_log = logging.getLogger(__name__)


def check_bucket(name: str, where: str, writes: bool, region: str) -> None:
    """Refuses a bucket that cannot be used, in seconds.

    Args:
        writes: Whether objects are to be made and deleted there, or only read.
        region: Where this process runs, such as "us-central1"; empty when not known. A bucket in
            another is only warned of.
    """
    if not name:
        raise UserError(f"{where} names no bucket; write gs://BUCKET/PATH")
    wanted = (*_READ, *_WRITE) if writes else _READ
    try:
        _check_kind(objects.credentials(), where)
        bucket = objects.client().bucket(name)
        held = bucket.test_iam_permissions(
            wanted, timeout=objects.TIMEOUT, retry=objects.retrying(_RETRY_SECONDS)
        )
    except objects.FAILURES as error:
        raise objects.explain(error, where) from None
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
    """What is to be said of a bucket that is far away.

    Returns:
        Where the bucket lies and what follows from it; empty for one that is near, and where the
        credentials may not ask.
    """
    try:
        bucket = objects.client().bucket(name)
        bucket.reload(timeout=objects.TIMEOUT, retry=objects.retrying(_RETRY_SECONDS))
    except exceptions.Forbidden:
        return ""  # objects.buckets.get is in none of the roles that training needs
    except objects.FAILURES as error:
        raise objects.explain(error, where) from None
    location = str(bucket.location or "").lower()
    if bucket.location_type == "dual-region" or location == region:
        return ""
    if location in _MULTI_REGIONS and region.startswith(_MULTI_REGIONS[location]):
        return ""
    return (
        f"{where}: the bucket lies in {location}, but this job runs in {region}: every byte read "
        f"crosses regions, slowly and for a charge; use a bucket in {region}"
    )
