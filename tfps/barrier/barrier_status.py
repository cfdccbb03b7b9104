"""Where the members of a barrier are, for the chief to see."""

import enum
from typing import NamedTuple


class Standing(enum.IntEnum):
    """How a member stands to the round."""

    AWAY = 0  # it is not waited for
    AWAITED = 1
    ARRIVED = 2  # it has contributed
    LATE = 3  # what it computes is for a round that has closed without it


class BarrierStatus(NamedTuple):
    """Where the rounds are.

    Attributes:
        round: Number of the open round, from 0.
        dropped: Contributions so far that came after their round had closed.
        standings: By member.
    """

    round: int
    dropped: int
    standings: list[Standing]
