"""The loops' graphs against the reference: the same messages, the same tokens and states."""

import collections
import concurrent.futures

import hypothesis
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tests import counting_task
from tests.barrier.loop_reference import (
    BEGIN,
    CONTRIBUTE,
    DISPLACED,
    EXPECT,
    LEAVE,
    ClocksReference,
    RoundsReference,
)
from tests.training_fixtures import Trainer
from tfps.barrier.messages import Kind, message
from tfps.experiment.mode import Bounded, Sync

MEMBERS = 3
LIMIT_SECONDS = 60
MODES = {
    "sync": (Sync(), lambda: RoundsReference(MEMBERS)),
    "backups": (Sync(backup_workers=1), lambda: RoundsReference(MEMBERS, backups=1)),
    "bounded": (Bounded(max_staleness=1), lambda: ClocksReference(MEMBERS, bound=1)),
}
# Most messages are what a closure would say that works as it should.
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([EXPECT, LEAVE, BEGIN, CONTRIBUTE, CONTRIBUTE, CONTRIBUTE]),
        st.integers(0, MEMBERS - 1),
        st.sampled_from([0, 0, 0, 0, 1, -1, None]),
        st.sampled_from([0, 0, 0, -1, None]),
    ),
    max_size=40,
)


@pytest.fixture(scope="module", params=MODES)
def loop_of_mode(request, tmp_path_factory):
    """A barrier, and what makes its reference."""
    mode, reference = MODES[request.param]
    task = counting_task.CountingTask(records=8)
    manifest = counting_task.write(tmp_path_factory.mktemp("data"), task, [8])
    trainer = Trainer(manifest, task, parts=1, members=MEMBERS, mode=mode)
    return trainer, trainer.barrier.run.get_concrete_function(), reference


def check(loop_of_mode, drawn):
    """Gives a loop messages, then holds against the reference what it has answered."""
    trainer, run, make_reference = loop_of_mode
    barrier, reference = trainer.barrier, make_reference()
    reset(trainer)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        loop = threads.submit(run)
        for kind, member, attempt, round_ in drawn:
            said = concrete(reference, kind, member, attempt, round_)
            reference.take(*said)
            if isinstance(reference, RoundsReference):
                while reference.can_close():
                    reference.close()
            kind, *header = said
            if kind == CONTRIBUTE:  # nothing else has a round, records, and one step
                trained = tf.constant([8, 0, 1, 0, 0], tf.float64)
                barrier._loop.messages.put(message(Kind(kind), *header, trained))
            else:
                barrier._loop.messages.put(message(Kind(kind), *header[:2]))
        barrier.stop()
        loop.result(LIMIT_SECONDS)
    assert tokens_of(barrier) == expected_tokens(reference)
    assert barrier.status() == (reference.open, reference.dropped, reference.states())
    if isinstance(reference, ClocksReference):
        assert [row.steps for row in trainer.progress.read()] == reference.recorded
        assert trainer.progress.orphaned_batches() == reference.orphaned_batches


def concrete(reference, kind, member, attempt, round_):
    """A message as it is at this point, from numbers beside the member's attempt and the round."""
    held = reference.members[member].attempt
    # What begins is a closure that has begun before, or one more.
    attempt = DISPLACED if attempt is None else max(0, held + attempt)
    if kind == BEGIN:
        attempt = max(attempt, 0)
    return kind, member, attempt, -2 if round_ is None else max(-2, reference.open + round_)


def reset(trainer):
    loop, progress = trainer.barrier._loop, trainer.progress
    held = [loop._attempts, loop._status, progress._values, progress._orphaned_batches]
    held.append(loop._arrived if trainer.barrier.has_rounds else loop._clocks)
    for variable in held:
        variable.assign(tf.zeros_like(variable))


def tokens_of(barrier):
    """By queue, in order."""
    found = {}
    for index, queue in enumerate(barrier._loop.tokens.queues):
        if size := int(queue.size()):
            found[index] = [tuple(token) for token in queue.dequeue_many(size).numpy().tolist()]
    return found


def expected_tokens(reference):
    found = collections.defaultdict(list)
    for member, attempt, *rest in reference.given:
        index = MEMBERS * 4 if attempt == DISPLACED else member * 4 + attempt % 4
        found[index].append((member, attempt, *rest))
    return found


@pytest.mark.quick("sync")
@hypothesis.settings(max_examples=40, derandomize=True, deadline=None, database=None)
@hypothesis.given(drawn=MESSAGES)
def test_a_loop_answers_as_its_reference(loop_of_mode, drawn):
    check(loop_of_mode, drawn)


@pytest.mark.slow
@hypothesis.settings(max_examples=2000, deadline=None)
@hypothesis.given(drawn=MESSAGES)
def test_a_loop_answers_as_its_reference_whatever_comes(loop_of_mode, drawn):
    check(loop_of_mode, drawn)
