"""The states of jobs on Vertex AI, of whatever kind."""

from collections.abc import Mapping
from typing import Any

GOOD = "SUCCEEDED"
LAST = (GOOD, "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")


def state_of(job: Mapping[str, Any]) -> str:
    """The state of a job."""
    return str(job.get("state", "UNKNOWN")).removeprefix("JOB_STATE_")
