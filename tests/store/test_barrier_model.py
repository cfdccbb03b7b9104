"""Explores what a barrier comes to when messages arrive in any order and workers are lost."""

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.store.barrier_model import Model
from tests.store.keeper_reference import EXPECT, LEAVE

MEMBERS, BATCHES = 2, 3
MOST_CLOSURES = 16
MODES = {"sync": {}, "backups": {"backups": 1}, "bounded": {"bound": 1}}
NUMBERS = st.integers(0, 59)


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

    @rule(numbers=st.lists(NUMBERS, min_size=4, max_size=40))
    def go_on(self, numbers):
        for number in numbers:
            self.model.happen(number)

    @rule(number=NUMBERS)
    def stop_or_continue(self, number):
        living = [each for each in self.model.closures if not each.is_over]
        if living:
            closure = living[number % len(living)]
            closure.is_stopped = not closure.is_stopped

    @precondition(lambda self: len(self.model.closures) < MOST_CLOSURES)
    @rule(member=st.integers(0, MEMBERS - 1))
    def begin(self, member):
        """The closure before may be at its end, lost, or only stopped."""
        self.model.begin(member)

    @rule(number=NUMBERS, is_cancelled=st.booleans())
    def kill(self, number, is_cancelled):
        living = [each for each in self.model.closures if not each.is_over]
        if living:
            self.model.kill(living[number % len(living)], is_cancelled)

    @rule(member=st.integers(0, MEMBERS - 1), kind=st.sampled_from([LEAVE, EXPECT]))
    def tell(self, member, kind):
        self.model.tell(kind, member)

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
    explore(mode, max_examples=200, stateful_step_count=30, derandomize=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_what_is_recorded_was_trained_whatever_comes(mode):
    explore(mode, max_examples=10_000, stateful_step_count=80)
