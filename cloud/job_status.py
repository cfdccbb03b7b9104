"""What a platform says of a job, in few words."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """A job at one moment."""

    name: str
    title: str
    state: str
    created: str
    has_ended: bool = False
    is_success: bool = False
    message: str = ""
