"""What a member of a barrier is and holds, and what becomes of it by every happening.

A token is the leave to pull once: `[FIELDS]` int64 with the member, its turn (the number of the
attempt for which its closure works), the round, and whether what it contributed before was taken.
"""

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


# The fields of a token.
MEMBER, TURN, ROUND, TAKEN = range(4)
FIELDS = 4

# In the place of a round:
DISPLACED = -1  # another closure has taken the member's place: this one ends
MISSED = -2  # the round has closed without it: it goes on with what was recorded, or begins again

STRAY = -1  # in the place of a turn: that of every closure that knows that it is displaced

_AWAY, _AWAITED, _ARRIVED, _LATE = Standing


class Happening(enum.IntEnum):
    """What an event is to the keeper, which knows whose turn it is and which round is open.

    The first five are what events say by themselves, see `Kind`.
    """

    EXPECTED = 0  # a closure will work for the member
    LEAVES = 1  # none does any more, or its worker is lost
    BEGINS = 2  # a closure has begun to, or does so again after it was late
    ARRIVES = 3  # the contribution of the member's closure to the open round is on every ps
    STOPS = 4  # the keeper is to end
    IS_LATE = 5  # the contribution of the member's closure is to another round
    STRAYS = 6  # a closure whose place another has taken has begun or contributed


# What a member is after a happening, by what it was. The table is that of docs/modes.md.
_AFTER = {
    #                     away      awaited   arrived   late
    Happening.EXPECTED: (_AWAITED, _AWAITED, _ARRIVED, _LATE),
    Happening.LEAVES: (_AWAY, _AWAY, _ARRIVED, _AWAY),
    Happening.BEGINS: (_AWAITED, _AWAITED, _AWAITED, _AWAITED),
    Happening.ARRIVES: (_ARRIVED, _ARRIVED, _ARRIVED, _ARRIVED),
    Happening.STOPS: (_AWAY, _AWAITED, _ARRIVED, _LATE),
    Happening.IS_LATE: (_AWAY, _AWAITED, _ARRIVED, _LATE),
    Happening.STRAYS: (_AWAY, _AWAITED, _ARRIVED, _LATE),
}
# Who repeats at once what came too late is waited for from then on.
_LATE_WITH_BACKUPS = (_AWAITED, _AWAITED, _ARRIVED, _AWAITED)
_CLOSED = (_AWAY, _AWAITED, _AWAITED, _LATE)
_CLOSED_WITH_BACKUPS = (_AWAY, _LATE, _AWAITED, _LATE)


def after_happening(has_backups: bool) -> list[list[int]]:
    """What members are after what happens to them.

    Args:
        has_backups: Whether rounds close without waiting for everybody.

    Returns:
        For each happening, the standing after it, by the one before.
    """
    rows = dict(_AFTER)
    if has_backups:
        rows[Happening.IS_LATE] = _LATE_WITH_BACKUPS
    return [[int(standing) for standing in rows[each]] for each in Happening]


def after_closing(has_backups: bool) -> list[int]:
    """What members are after a round has closed, by what they were before."""
    row = _CLOSED_WITH_BACKUPS if has_backups else _CLOSED
    return [int(standing) for standing in row]
