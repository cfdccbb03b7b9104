"""What a platform says of a job, in few words."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """A job at one moment.

    Attributes:
        name: The platform's name of the job, which `follow`, `cancel` and `describe` take.
        title: The job's own name.
        state: The platform's word for its state.
        created: When it was made, as the platform writes it.
        has_ended: Whether the state is the last one.
        is_success: Whether it has ended well.
        message: Why it has failed, as far as the platform says.
    """

    name: str
    title: str
    state: str
    created: str
    has_ended: bool = False
    is_success: bool = False
    message: str = ""
