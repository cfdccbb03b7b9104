"""How long a task goes on after SIGTERM, which a platform must allow it."""

import math
import re

from cloud.job_spec import JobSpec
from tfps.errors import UserError

_DEFAULT = "25"  # of trainer.task's --grace_seconds


def grace_seconds(spec: JobSpec) -> int:
    """The tasks' --grace_seconds, rounded up."""
    text = spec.argument("grace_seconds") or _DEFAULT
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        raise UserError(f"--grace_seconds={text} is no number of seconds; write one such as 25")
    return math.ceil(float(text))
