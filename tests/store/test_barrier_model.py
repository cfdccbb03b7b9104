"""Explores what a barrier comes to when messages arrive in any order and workers are lost."""

import pathlib
import random

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.store.barrier_model import Model
from tests.store.keeper_reference import EXPECT, LEAVE
from tfps.store.barrier_status import Standing
from tfps.store.transitions import Happening, after_closing, after_happening

MEMBERS, BATCHES = 2, 3
MOST_CLOSURES = 16
NAMES = [standing.name.lower() for standing in Standing]
MODES = {"sync": {}, "backups": {"backups": 1}, "bounded": {"bound": 1}}
SEEDS = st.integers(0, 1 << 32)


class Exploration(RuleBasedStateMachine):
    """Draws what comes next; in the end everything is let come to its end."""

    mode: dict[str, int]

    def __init__(self):
        super().__init__()
        self.model = Model(MEMBERS, BATCHES, **self.mode)

    @initialize()
    def begin_all(self):
        for member in range(MEMBERS):
            self.model.begin(member)

    @rule(seed=SEEDS)
    def go_on(self, seed):
        drawn = random.Random(seed)
        for _ in range(drawn.randrange(60)):
            self.model.happen(drawn.randrange(60))
            self.model.check()

    @rule(seed=SEEDS)
    def disturb(self, seed):
        drawn, living = random.Random(seed), [c for c in self.model.closures if not c.is_over]
        closure = drawn.choice(living) if living else None
        match drawn.randrange(4):
            case 0:
                self.model.tell(drawn.choice([LEAVE, LEAVE, EXPECT]), drawn.randrange(MEMBERS))
            case 1 if len(self.model.closures) < MOST_CLOSURES:
                # The one before may be at its end, lost, or only stopped.
                self.model.begin(drawn.randrange(MEMBERS))
            case 2 if closure:
                closure.is_stopped = not closure.is_stopped
            case 3 if closure:
                self.model.kill(closure, is_cancelled=drawn.random() < 0.5)

    @invariant()
    def what_is_applied_is_recorded(self):
        self.model.check()

    def teardown(self):
        self.model.settle()


def explore(mode, **settings):
    class Machine(Exploration):
        pass

    Machine.mode = MODES[mode]
    settings = hypothesis.settings(deadline=None, database=None, **settings)
    hypothesis.stateful.run_state_machine_as_test(Machine, settings=settings)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_recorded_was_trained_and_nobody_waits_for_ever(mode):
    explore(mode, max_examples=100, stateful_step_count=8, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_what_is_recorded_was_trained_whatever_comes(mode):
    explore(mode, max_examples=10_000, stateful_step_count=20)


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
