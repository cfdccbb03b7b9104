"""Explores what a barrier comes to when messages arrive in any order and workers are lost."""

import pathlib
import random

import pytest

from tests.barrier.barrier_model import Model
from tests.barrier.keeper_reference import ARRIVED, AWAY, EXPECT, LEAVE, ClocksKeeper, RoundsKeeper
from tfps.barrier.member_state import Happening, Standing, after_closing, after_happening

BATCHES = 3
MOST_CLOSURES = 16
NAMES = [standing.name.lower() for standing in Standing]
MODES = {"sync": {}, "backups": {"backups": 1}, "bounded": {"bound": 1}}


def explore(mode, seeds, keeper=None):
    """Lets a barrier live through what seeds draw; each time everything must come to its end.

    Args:
        mode: One of `MODES`.
        seeds: Each draws what happens, and how much between two disturbances.
        keeper: Class of the keeper; the right one if None.
    """
    for seed in seeds:
        live_through(random.Random(seed), mode, keeper)


def live_through(drawn, mode, keeper):
    members = drawn.choice([2, 2, 3])
    model = Model(members, BATCHES, **MODES[mode], keeper=keeper)
    for member in range(members):
        model.begin(member)
    for _ in range(drawn.randrange(12)):
        for _ in range(drawn.choice([1, 4, 16, 60])):
            model.happen(drawn.randrange(60))
            model.check()
        disturb(model, drawn)
        model.check()
    model.settle()
    model.check()


def disturb(model, drawn):
    """Something that others do: the chief, a machine, the network."""
    living = [closure for closure in model.closures if not closure.is_over]
    closure = drawn.choice(living) if living else None
    match drawn.randrange(4):
        case 0:
            model.tell(drawn.choice([LEAVE, LEAVE, EXPECT]), drawn.randrange(len(model.numbers)))
        case 1 if len(model.closures) < MOST_CLOSURES:
            # The one before may be at its end, lost, or only stopped.
            model.begin(drawn.randrange(len(model.numbers)))
        case 2 if closure:
            closure.is_stopped = not closure.is_stopped
        case 3 if closure:
            model.kill(closure, is_cancelled=drawn.random() < 0.5)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_recorded_was_trained_and_nobody_waits_for_ever(mode):
    explore(mode, range(600))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", MODES)
def test_what_is_recorded_was_trained_whatever_comes(mode):
    explore(mode, range(600, 10_000))


class CountsLateOnes(RoundsKeeper):
    """Takes what was meant for an earlier round for a contribution to the open one."""

    def contributes(self, number, member, round_):
        member.standing = ARRIVED


class TakesStrays(RoundsKeeper):
    """Takes what a closure contributes whose place another has."""

    def take(self, kind, number, turn, round_):
        super().take(kind, number, max(turn, self.members[number].turn), round_)


class LetsArrivedOnesLeave(RoundsKeeper):
    """Forgets a contribution when its member leaves."""

    def take(self, kind, number, turn, round_):
        super().take(kind, number, turn, round_)
        if kind == LEAVE:
            self.members[number].standing = AWAY


class TellsNobodyOfMissedRounds(RoundsKeeper):
    """Lets a closure go on as if its late contribution had been taken."""

    def contributes(self, number, member, round_):
        if round_ == self.open:
            member.standing = ARRIVED
        else:
            self.given.append((number, member.turn, self.open, 1))


class KeepsWhoIsDisplaced(RoundsKeeper):
    """Tells a closure nothing when another takes its place."""

    def take(self, kind, number, turn, round_):
        super().take(kind, number, turn, round_)
        self.given = [token for token in self.given if token[2] >= 0]


class RecordsStrays(ClocksKeeper):
    """Takes a step of a closure whose place another has for one of the member's."""

    def take(self, kind, number, turn, round_):
        super().take(kind, number, max(turn, self.members[number].turn), round_)


class WaitsForWhoHasLeft(ClocksKeeper):
    """Waits for a member that has left."""

    def take(self, kind, number, turn, round_):
        if kind != LEAVE:
            super().take(kind, number, turn, round_)


@pytest.mark.parametrize(
    ("mode", "keeper"),
    [
        ("sync", CountsLateOnes),
        ("backups", CountsLateOnes),
        ("sync", TakesStrays),
        ("sync", LetsArrivedOnesLeave),
        ("sync", TellsNobodyOfMissedRounds),
        ("backups", TellsNobodyOfMissedRounds),
        ("sync", KeepsWhoIsDisplaced),
        ("bounded", RecordsStrays),
        ("bounded", WaitsForWhoHasLeft),
    ],
)
def test_a_wrong_keeper_is_found(mode, keeper):
    with pytest.raises(AssertionError):
        explore(mode, range(600), keeper)


@pytest.mark.parametrize("has_backups", [False, True])
def test_the_table_of_the_docs_is_that_of_the_keeper(has_backups):
    text = pathlib.Path("docs/modes.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:6]] for line in text.splitlines()]
    rows = {row[0]: row[1:] for row in rows if len(row) == 5 and row[1] in NAMES}
    del rows["happens"]
    told = {}
    for happens, cells in rows.items():
        name, _, only = happens.partition(", ")
        if only != "with backups" or has_backups:
            told[name.partition(":")[0]] = [NAMES.index(cell) for cell in cells]
    table = after_happening(has_backups)
    table.pop(Happening.STOPS)
    assert list(told.values()) == [*table, after_closing(has_backups)]
