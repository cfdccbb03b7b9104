"""What a member of a barrier is, and what becomes of it by every event.

The table of transitions is that of docs/modes.md; `tfps/barrier/loop.py` looks it up.
"""

import enum
from typing import NamedTuple

import numpy as np

from tfps.barrier.messages import Answer, Kind


class MemberState(enum.IntEnum):
    """How a member stands to the round."""

    AWAY = 0  # it is not waited for
    AWAITED = 1
    ARRIVED = 2  # it has contributed
    LATE = 3  # what it computes is for a round that has closed without it


class BarrierStatus(NamedTuple):
    """Where the rounds are.

    Attributes:
        round: Number of the open round, from 0; without rounds, of the steps of all members.
        dropped: Contributions so far that came after their round had closed.
    """

    round: int
    dropped: int
    states: list[MemberState]


class Event(enum.IntEnum):
    """What a message means for its member, which depends on whose place it is and on the round.

    The first five are what messages say by themselves, see `Kind`.
    """

    EXPECTED = Kind.EXPECT
    LEAVES = Kind.LEAVE
    BEGINS = Kind.BEGIN
    ARRIVES = Kind.CONTRIBUTE  # the closure that has the member's place, and it has to wait
    STOPS = Kind.STOP
    KEEPS_UP = 5  # it arrives, and is not too far ahead of the slowest: only without rounds
    IS_LATE = 6  # it arrives, but for another round than the one that is open
    IS_DISPLACED = 7  # a closure has begun or contributed, but another one has the member's place
    ROUND_CLOSES = 8  # no message: it comes to all members at once


_AWAY, _AWAITED, _ARRIVED, _LATE = MemberState

# What a member is after an event, by what it was, and what its closure is told. Besides, a closure
# that has arrived is told to end when another begins in its place.
_TRANSITIONS = {
    #                      away      awaited   arrived   late      its closure is told
    Event.EXPECTED: ((_AWAITED, _AWAITED, _ARRIVED, _LATE), Answer.NOTHING),
    Event.LEAVES: ((_AWAY, _AWAY, _ARRIVED, _AWAY), Answer.NOTHING),
    Event.BEGINS: ((_AWAITED, _AWAITED, _AWAITED, _AWAITED), Answer.PULL),
    Event.ARRIVES: ((_ARRIVED, _ARRIVED, _ARRIVED, _ARRIVED), Answer.NOTHING),
    Event.STOPS: ((_AWAY, _AWAITED, _ARRIVED, _LATE), Answer.NOTHING),
    Event.KEEPS_UP: ((_AWAITED, _AWAITED, _AWAITED, _AWAITED), Answer.NEXT),
    Event.IS_LATE: ((_AWAY, _AWAITED, _ARRIVED, _LATE), Answer.BEGIN_AGAIN),
    Event.IS_DISPLACED: ((_AWAY, _AWAITED, _ARRIVED, _LATE), Answer.END),
    Event.ROUND_CLOSES: ((_AWAY, _LATE, _AWAITED, _LATE), Answer.NEXT),
}
# Where rounds close without waiting for everybody, a member that is late repeats its batch at once,
# and is waited for again.
_WITH_BACKUPS = {
    Event.IS_LATE: ((_AWAITED, _AWAITED, _ARRIVED, _AWAITED), Answer.PULL),
}


class Transitions(NamedTuple):
    """The table as arrays of int64.

    Attributes:
        states: By event and state before: the state after, `[events, states]`.
        answers: By event: an `Answer`, `[events]`.
    """

    states: np.ndarray
    answers: np.ndarray

    @classmethod
    def of(cls, has_backups: bool) -> "Transitions":
        """Makes the table."""
        rows = {**_TRANSITIONS, **(_WITH_BACKUPS if has_backups else {})}
        states, answers = zip(*(rows[event] for event in Event), strict=True)
        return cls(np.array(states, np.int64), np.array(answers, np.int64))
