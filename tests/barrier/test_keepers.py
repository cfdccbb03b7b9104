"""The keepers' graphs against the reference: the same events, the same tokens and standings."""

import collections
import concurrent.futures

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tests import visits
from tests.barrier.keeper_reference import (
    BEGIN,
    CONTRIBUTE,
    EXPECT,
    LEAVE,
    STRAY,
    ClocksKeeper,
    RoundsKeeper,
)
from tests.training_fixtures import Trainer
from tfps.barrier.barrier import Kind, _event
from tfps.experiment.mode import Mode

MEMBERS = 3
LIMIT_SECONDS = 60
MODES = {
    "sync": (Mode("sync"), lambda: RoundsKeeper(MEMBERS)),
    "backups": (Mode("sync", backup_workers=1), lambda: RoundsKeeper(MEMBERS, backups=1)),
    "bounded": (Mode("bounded", max_staleness=1), lambda: ClocksKeeper(MEMBERS, bound=1)),
}
# Most events are what a closure would say that works as it should.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from([EXPECT, LEAVE, BEGIN, CONTRIBUTE, CONTRIBUTE, CONTRIBUTE]),
        st.integers(0, MEMBERS - 1),
        st.sampled_from([0, 0, 0, 0, 1, -1, None]),
        st.sampled_from([0, 0, 0, -1, None]),
    ),
    max_size=40,
)


@pytest.fixture(scope="module", params=MODES)
def kept(request, tmp_path_factory):
    """A barrier, and what makes its reference."""
    mode, reference = MODES[request.param]
    task = visits.Visits(records=8)
    manifest = visits.write(tmp_path_factory.mktemp("data"), task, [8])
    trainer = Trainer(manifest, task, parts=1, members=MEMBERS, mode=mode)
    return trainer, trainer.barrier.keep.get_concrete_function(), reference


def check(kept, drawn):
    """Gives a keeper events, then holds against the reference what it has answered."""
    trainer, keep, make_reference = kept
    barrier, reference = trainer.barrier, make_reference()
    reset(trainer)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        keeper = threads.submit(keep)
        for kind, member, turn, round_ in drawn:
            event = concrete(reference, kind, member, turn, round_)
            reference.take(*event)
            if isinstance(reference, RoundsKeeper):
                while reference.can_close():
                    reference.close()
            numbers = _event(Kind(event[0]), event[1], event[2]).numpy()
            if event[0] == CONTRIBUTE:  # nothing else has a round, records, and one step
                numbers[3], numbers[4], numbers[6] = event[3], 8, 1
            barrier._events.enqueue(numbers)
        barrier.stop()
        keeper.result(LIMIT_SECONDS)
    assert tokens_of(barrier) == expected_tokens(reference)
    assert barrier.status() == (reference.open, reference.dropped, reference.standings())
    if isinstance(reference, ClocksKeeper):
        assert [row.steps for row in trainer.progress.read()] == reference.recorded
        assert trainer.progress.orphaned_batches() == reference.strayed


def concrete(reference, kind, member, turn, round_):
    """An event as it is at this point, from numbers beside the member's turn and the open round."""
    held = reference.members[member].turn
    # What begins is a closure that has begun before, or one more.
    turn = STRAY if turn is None else max(0, held + turn)
    if kind == BEGIN:
        turn = max(turn, 0)
    return kind, member, turn, -2 if round_ is None else max(-2, reference.open + round_)


def reset(trainer):
    barrier, progress = trainer.barrier, trainer.progress
    held = [barrier._turns, barrier._status, progress._values, progress._strayed]
    held.append(barrier._arrived if barrier.has_rounds else barrier._clocks)
    for variable in held:
        variable.assign(tf.zeros_like(variable))


def tokens_of(barrier):
    """By queue, in order."""
    found = {}
    for index, queue in enumerate(barrier._tokens):
        if size := int(queue.size()):
            found[index] = [tuple(token) for token in queue.dequeue_many(size).numpy().tolist()]
    return found


def expected_tokens(reference):
    found = collections.defaultdict(list)
    for member, turn, *rest in reference.given:
        index = MEMBERS * 4 if turn == STRAY else member * 4 + turn % 4
        found[index].append((member, turn, *rest))
    return found


@hypothesis.settings(max_examples=40, derandomize=True, deadline=None, database=None)
@hypothesis.given(drawn=EVENTS)
def test_a_keeper_answers_as_its_reference(kept, drawn):
    check(kept, drawn)


@pytest.mark.slow
@hypothesis.settings(max_examples=2000, deadline=None)
@hypothesis.given(drawn=EVENTS)
def test_a_keeper_answers_as_its_reference_whatever_comes(kept, drawn):
    check(kept, drawn)
