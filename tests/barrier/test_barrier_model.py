"""Explores what a barrier comes to when messages arrive in any order and workers are lost."""

import pathlib
import random

import pytest

from tests.barrier.barrier_model import Model
from tests.barrier.loop_reference import (
    ARRIVED,
    AWAY,
    EXPECT,
    LEAVE,
    ClocksReference,
    RoundsReference,
)
from tfps.barrier.loop import Event, MemberState, Transitions
from tfps.barrier.messages import Answer

BATCHES = 3
MOST_CLOSURES = 16
NAMES = [state.name.lower() for state in MemberState]
MODES = {
    "sync": {},
    "backups": {"backups": 1},
    "bounded": {"bound": 1},
    "pulled ahead": {"bound": 0},  # as far as the bound is
}


def explore(mode, seeds, loop=None):
    """Lets a barrier live through what seeds draw; each time everything must come to its end.

    Args:
        mode: One of `MODES`.
        seeds: Each draws what happens, and how much between two disturbances.
        loop: Class of the barrier loop; the right one if None.
    """
    for seed in seeds:
        live_through(random.Random(seed), mode, loop)


def live_through(drawn, mode, loop):
    members = drawn.choice([2, 2, 3])
    model = Model(members, BATCHES, **MODES[mode], loop=loop)
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


class CountsLateOnes(RoundsReference):
    """Takes what was meant for an earlier round for a contribution to the open one."""

    def contributes(self, number, member, round_):
        member.state = ARRIVED


class TakesDisplacedOnes(RoundsReference):
    """Takes what a closure contributes whose place another has."""

    def take(self, kind, number, attempt, round_):
        super().take(kind, number, max(attempt, self.members[number].attempt), round_)


class LetsArrivedOnesLeave(RoundsReference):
    """Forgets a contribution when its member leaves."""

    def take(self, kind, number, attempt, round_):
        super().take(kind, number, attempt, round_)
        if kind == LEAVE:
            self.members[number].state = AWAY


class TellsNobodyOfMissedRounds(RoundsReference):
    """Lets a closure continue as if its late contribution had been taken."""

    def contributes(self, number, member, round_):
        if round_ == self.open:
            member.state = ARRIVED
        else:
            self.given.append((number, member.attempt, self.open, 1))


class KeepsWhoIsDisplaced(RoundsReference):
    """Tells a closure nothing when another takes its place."""

    def take(self, kind, number, attempt, round_):
        super().take(kind, number, attempt, round_)
        self.given = [token for token in self.given if token[2] >= 0]


class RecordsDisplacedOnes(ClocksReference):
    """Takes a step of a closure whose place another has for one of the member's."""

    def take(self, kind, number, attempt, round_):
        super().take(kind, number, max(attempt, self.members[number].attempt), round_)


class WaitsForWhoHasLeft(ClocksReference):
    """Waits for a member that has left."""

    def take(self, kind, number, attempt, round_):
        if kind != LEAVE:
            super().take(kind, number, attempt, round_)


@pytest.mark.parametrize(
    ("mode", "loop"),
    [
        ("sync", CountsLateOnes),
        ("backups", CountsLateOnes),
        ("sync", TakesDisplacedOnes),
        ("sync", LetsArrivedOnesLeave),
        ("sync", TellsNobodyOfMissedRounds),
        ("backups", TellsNobodyOfMissedRounds),
        ("sync", KeepsWhoIsDisplaced),
        ("bounded", RecordsDisplacedOnes),
        ("bounded", WaitsForWhoHasLeft),
    ],
)
def test_a_wrong_loop_is_found(mode, loop):
    with pytest.raises(AssertionError):
        explore(mode, range(600), loop)


@pytest.mark.parametrize("has_backups", [False, True])
def test_the_table_of_the_docs_is_that_of_the_loop(has_backups):
    text = pathlib.Path("docs/modes.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:7]] for line in text.splitlines()]
    rows = {row[0]: row[1:] for row in rows if len(row) == 6 and row[1] in NAMES}
    del rows["event"]
    found = {}
    for title, (*states, told) in rows.items():
        name, _, only = title.partition(":")[0].partition(", ")
        if only != "with backups" or has_backups:
            answer = told.partition(";")[0].replace(" ", "_").upper() or "NOTHING"
            found[name] = [NAMES.index(state) for state in states], Answer[answer]
    events = [event for event in Event if event != Event.STOPS]
    assert list(found) == [event.name.lower().replace("_", " ") for event in events]
    states, answers = Transitions.of(has_backups)
    assert list(found.values()) == [(list(states[each]), answers[each]) for each in events]
