"""Looks whether buckets can be used, before anything else is done with them."""

import dataclasses
import os
from collections.abc import Sequence

from tfps.storage.paths import bucket_and_name, is_cloud

# What Vertex AI says of where a job runs; set it elsewhere to have locations compared.
REGION_VARIABLE = "CLOUD_ML_REGION"


@dataclasses.dataclass(frozen=True)
class Use:
    """What a path is used for.

    Attributes:
        path: Any path; only those on gs:// are looked at.
        writes: Whether objects are made and deleted there, or only read.
    """

    flag: str
    path: str
    writes: bool = False


def check(uses: Sequence[Use]) -> None:
    """Asks each bucket once whether this process may do with it what it is about to.

    A bucket in another region than the job's is only warned of: it works, slowly and for a charge.
    """
    buckets: dict[str, list[Use]] = {}
    for use in uses:
        if is_cloud(use.path):
            buckets.setdefault(bucket_and_name(use.path)[0], []).append(use)
    if not buckets:
        return
    # Loaded here: Google's client takes a quarter of a second, which local runs are spared.
    from tfps.storage.buckets import check_bucket

    for bucket, its in buckets.items():
        writer = next((use for use in its if use.writes), its[0])
        where = f"{writer.flag}={writer.path}"
        check_bucket(bucket, where, writer.writes, os.environ.get(REGION_VARIABLE, ""))
