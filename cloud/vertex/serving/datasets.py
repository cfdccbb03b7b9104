"""Datasets of BigQuery from which a batch prediction reads, and into which it writes."""

import re

from cloud.vertex.rest import RefusedError, Rest
from tfps.errors import UserError

_BIGQUERY = "https://bigquery.googleapis.com"
_DATASET = r"bq://([^./]+)\.([^./]+)(\.[^./]+)?"
_FORBIDDEN = 403
# Regions that a location of several has, by what their names begin with.
_MULTI_REGIONS = {"us": "us-", "eu": "europe-"}


def check_location(rest: Rest, endpoint: str, flag: str, path: str, region: str) -> None:
    """Refuses a dataset that is missing, or in another region than the servers.

    Args:
        rest: A session.
        endpoint: What stands for Google's APIs; empty for those themselves.
        flag: What named the dataset, for messages.
        path: `bq://PROJECT.DATASET` or a table of one; any other is not looked at.
        region: The servers'.

    Raises:
        UserError: If so. An account that may not ask where the dataset is finds nothing wrong.
    """
    match = re.fullmatch(_DATASET, path)
    if match is None:
        return
    url = f"{endpoint or _BIGQUERY}/bigquery/v2/projects/{match[1]}/datasets/{match[2]}"
    try:
        found = rest.look(url)
    except RefusedError as error:
        if error.status != _FORBIDDEN:
            raise
        return
    if found is None:
        raise UserError(f"{flag}={path}: there is no dataset {match[1]}.{match[2]}; make it first")
    location = str(found.get("location", "")).lower()
    if location != region and not region.startswith(_MULTI_REGIONS.get(location, region + "-")):
        raise UserError(
            f"{flag}={path}: the dataset lies in {location or 'no place that is told'}, but this "
            f"job runs in {region}, and Vertex AI needs both in one region; use a dataset there, "
            "or another --region"
        )
