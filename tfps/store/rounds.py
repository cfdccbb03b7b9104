"""Rounds: the gradients of several workers are averaged and applied once, behind a barrier."""

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfps.store.contributions import Contributions, Decision
from tfps.store.gradients import Gradients
from tfps.store.parameter_store import ParameterStore
from tfps.store.round_status import RoundStatus, Standing
from tfps.store.token import FIELDS, MEMBER, ROUND, TURN

_TURNS = 4  # queues of tokens for each member, used in turn
_EVENTS = 1 << 16  # that may wait
_CHANGE = 4  # numbers of a lease's progress


class _Kind(enum.IntEnum):
    """What an event says."""

    EXPECT = 0  # a closure will work for the member
    LEAVE = 1  # none does any more
    BEGIN = 2  # a closure has begun to
    CONTRIBUTE = 3  # a batch's gradients are on every ps
    STOP = 4


class _State(NamedTuple):
    """What the keeper knows; `[members]` each but for the first three, scalars."""

    round: tf.Tensor  # int64
    dropped: tf.Tensor  # int64
    is_stopped: tf.Tensor  # bool
    standings: tf.Tensor  # int64
    turns: tf.Tensor  # int64
    arrived: tf.Tensor  # [members, 1 + _CHANGE] float64: records, change of the lease's progress


class Rounds:
    """The keeper of rounds on the first ps, and how workers and chief talk to it.

    A member of the rounds is a slot of leases, whichever worker trains them. The keeper, one
    function that runs as long as the training does, takes events from a queue: who is expected, who
    has begun, who has contributed. When everybody who is expected has contributed, or enough have,
    every ps applies the mean of what they sent, weighted by records, once, and adds up the progress
    of their leases. Then each gets a token. A worker's next pull waits for it on the ps, so that
    the barrier costs no message of its own. Nothing of it passes through the chief.

    A contribution is announced to the keeper once it is on every ps: a worker that dies while it
    sends leaves nothing half-applied. Progress is recorded with the update itself: no batch is
    trained twice, and none is left out, whatever is lost when.
    """

    def __init__(self, store: ParameterStore, members: int, backups: int):
        """Creates the queues.

        Args:
            store: Where the parameters are.
            members: Slots of leases.
            backups: So many of the members are not waited for.
        """
        self._store = store
        self._members = members
        self._needed = members - backups
        self._drops = backups > 0
        self._device = store.devices[0]
        capacity = 4 * members + 16
        self._contributions = Contributions(store, capacity, self._drops)
        with tf.device(self._device):
            width = FIELDS + 1 + _CHANGE
            self._events = tf.queue.FIFOQueue(_EVENTS, [tf.float64], shapes=[[width]])
            self._tokens = [
                tf.queue.FIFOQueue(capacity, [tf.int64], shapes=[[FIELDS]])
                for _ in range(members * _TURNS)
            ]
            self._turns = tf.Variable(tf.zeros([members], tf.int64), trainable=False)
            self._status = tf.Variable(tf.zeros([2 + members], tf.int64), trainable=False)
        self.keep = tf.function(self._keep, input_signature=[], autograph=False)

    def begin(self, member: tf.Tensor, worker: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """In a closure: takes a member's place in the open round.

        Returns:
            The token to pull with first, and the steps already trained of its lease, scalar int64.
        """
        progress = self._store.progress
        with tf.device(self._device):
            attempt = progress.begin(member, worker)
            self._turns.scatter_add(tf.IndexedSlices(tf.ones([], tf.int64), member))
            turn = self._turns.sparse_read(member)
            with tf.control_dependencies([attempt]):
                begun = self._events.enqueue(_event(_Kind.BEGIN, member, turn))
            with tf.control_dependencies([begun]):
                token = self._next_token(member, turn)
            # What its lease's last closure contributed is recorded by now, or never will be.
            with tf.control_dependencies([token]):
                steps = tf.cast(progress.slot(member)[1], tf.int64)
        return token, steps

    def contribute(
        self, token: tf.Tensor, gradients: Gradients, records: tf.Tensor, change: tf.Tensor
    ) -> tf.Tensor:
        """In a closure: sends a batch's gradients and waits until its round has closed.

        Args:
            token: What the batch's parameters were pulled with.
            gradients: The batch's.
            records: How many it has, scalar int32.
            change: What it adds to the lease's progress, `[4]` float64.

        Returns:
            The next token.
        """
        # One tensor: each one that travels costs a message.
        numbers = tf.concat([[tf.cast(records, tf.float64)], change], 0)
        queued = self._contributions.send(token, gradients)
        with tf.device(self._device), tf.control_dependencies(queued):
            said = [[float(_Kind.CONTRIBUTE)], tf.cast(token[: ROUND + 1], tf.float64), numbers]
            announced = self._events.enqueue(tf.concat(said, 0))
        with tf.device(self._device), tf.control_dependencies([announced]):
            return self._next_token(token[MEMBER], token[TURN])

    def expect(self, members: Sequence[int]) -> None:
        """On the chief: has rounds wait for members, for whom closures are about to begin."""
        self._tell(_Kind.EXPECT, members)

    def leave(self, members: Sequence[int]) -> None:
        """On the chief: has rounds wait no more for members, until a closure begins for them."""
        self._tell(_Kind.LEAVE, members)

    def stop(self) -> None:
        """On the chief: ends the keeper."""
        self._tell(_Kind.STOP, [0])

    def status(self) -> RoundStatus:
        """On the chief: where the rounds are."""
        round_, dropped, *standings = self._status.numpy()
        return RoundStatus(int(round_), int(dropped), [Standing(each) for each in standings])

    def _tell(self, kind: _Kind, members: Sequence[int]) -> None:
        for member in members:
            with tf.device(self._device):
                self._events.enqueue(_event(kind, member, 0))

    def _keep(self) -> tf.Tensor:
        """The keeper; returns the number of rounds that have closed."""
        members = [self._members]
        with tf.device(self._device):
            first = _State(
                round=tf.zeros([], tf.int64),
                dropped=tf.zeros([], tf.int64),
                is_stopped=tf.constant(False),
                standings=tf.fill(members, _int64(Standing.AWAY)),
                turns=tf.zeros(members, tf.int64),
                arrived=tf.zeros([*members, 1 + _CHANGE], tf.float64),
            )
            last = tf.while_loop(
                lambda *state: ~_State(*state).is_stopped,
                lambda *state: self._collected(self._closed(_State(*state))),
                self._collected(first),
            )
            return last[0]

    def _collected(self, state: _State) -> _State:
        """Takes events until the round can be closed."""

        def goes_on(*values: tf.Tensor) -> tf.Tensor:
            with tf.device(self._device):
                state = _State(*values)
                arrived = _count(state.standings, Standing.ARRIVED)
                possible = arrived + _count(state.standings, Standing.AWAITED)
                is_full = (arrived > 0) & (arrived >= tf.minimum(self._needed, possible))
                return ~(is_full | state.is_stopped)

        return _State(*tf.while_loop(goes_on, lambda *x: self._after_event(_State(*x)), state))

    def _after_event(self, state: _State) -> _State:
        """Takes an event: the state before and after."""
        with tf.device(self._device):
            event = self._events.dequeue()
            kind, member, turn, of_round = tf.unstack(tf.cast(event[:FIELDS], tf.int64))
            begins = tf.equal(kind, _Kind.BEGIN)
            contributes = tf.equal(kind, _Kind.CONTRIBUTE)
            is_its = tf.equal(turn, state.turns[member])
            is_late = contributes & is_its & self._drops & tf.not_equal(of_round, state.round)
            arrives = contributes & is_its & ~is_late
            before = state.standings[member]
            expected = tf.equal(kind, _Kind.EXPECT) & tf.equal(before, Standing.AWAY)
            leaves = tf.equal(kind, _Kind.LEAVE) & tf.not_equal(before, Standing.ARRIVED)
            after = tf.where(leaves, _int64(Standing.AWAY), before)
            after = tf.where(expected | begins | is_late, _int64(Standing.AWAITED), after)
            after = tf.where(arrives, _int64(Standing.ARRIVED), after)
            where = [[member]]
            row = tf.where(arrives, event[FIELDS:], state.arrived[member])
            state = _State(
                state.round,
                state.dropped + tf.cast(is_late, tf.int64),
                tf.equal(kind, _Kind.STOP),
                tf.tensor_scatter_nd_update(state.standings, where, [after]),
                tf.tensor_scatter_nd_max(state.turns, where, [turn]),
                tf.tensor_scatter_nd_update(state.arrived, where, [row]),
            )
            shown = self._show(state)
            # Who is told to train for a round without having to wait for it; who to stop.
            answers = begins | (contributes & ~arrives)
            round_ = tf.where(is_its | begins, state.round, _int64(-1))
            with tf.control_dependencies([shown]):
                token = tf.stack([member, turn, round_, 0])
            tf.cond(answers, lambda: self._give(token), tf.no_op)
            return state

    def _closed(self, state: _State) -> _State:
        """Applies what has arrived and opens the next round."""
        with tf.device(self._device):
            has_arrived = tf.equal(state.standings, Standing.ARRIVED)
            arrived = tf.where(has_arrived[:, tf.newaxis], state.arrived, 0.0)
            weights = arrived[:, 0] / tf.reduce_sum(arrived[:, 0])
            turns = tf.cast(state.turns, tf.float64)
            # One tensor: each one that travels costs a message.
            decided = tf.concat([[tf.cast(state.round, tf.float64)], turns, weights], 0)
        writes = self._apply(decided)
        with tf.device(self._device):
            writes.append(self._store.progress.add(arrived[:, 1:]))
            with tf.control_dependencies(writes):
                round_ = state.round + 1
            missed = _int64(Standing.LATE if self._drops else Standing.AWAITED)
            was_awaited = tf.equal(state.standings, Standing.AWAITED)
            standings = tf.where(was_awaited, missed, state.standings)
            standings = tf.where(has_arrived, _int64(Standing.AWAITED), standings)
            state = state._replace(round=round_, standings=standings)
            with tf.control_dependencies([self._show(state)]):
                ready = tf.where(has_arrived)[:, 0]
            self._give_all(ready, state)
            return state

    def _apply(self, decided: tf.Tensor) -> list[tf.Operation]:
        """Applies what a round takes on every ps; returns the operations that write."""
        store, writes = self._store, []
        steps = store.count_update()
        store.staleness.count(steps[0], steps[0])
        for part, device in enumerate(store.devices):
            with tf.device(device):
                here = tf.identity(decided)
                round_, turns, weights = tf.split(here, [1, self._members, self._members])
                decision = Decision(
                    tf.cast(round_[0], tf.int64),
                    tf.cast(turns, tf.int64),
                    tf.cast(weights, tf.float32),
                )
                writes += self._contributions.apply(part, decision, steps[part])
        return writes

    def _give_all(self, members: tf.Tensor, state: _State) -> None:
        """Gives tokens of the round to members whose contributions it has taken."""

        def give(index: tf.Tensor) -> tuple[tf.Tensor]:
            with tf.device(self._device):
                member = members[index]
                token = tf.stack([member, state.turns[member], state.round, 1])
                with tf.control_dependencies([self._give(token)]):
                    return (index + 1,)

        tf.while_loop(lambda index: index < tf.size(members), give, (0,))

    def _give(self, token: tf.Tensor) -> tf.Operation:
        with tf.device(self._device):
            handle = self._tokens_of(token[MEMBER], token[TURN])
            return tf.raw_ops.QueueEnqueueV2(handle=handle, components=[token])

    def _next_token(self, member: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
        handle = self._tokens_of(member, turn)
        (token,) = tf.raw_ops.QueueDequeueV2(handle=handle, component_types=[tf.int64])
        return tf.ensure_shape(token, [FIELDS])

    def _tokens_of(self, member: tf.Tensor, turn: tf.Tensor) -> tf.Tensor:
        """The queue in which a member finds its tokens in one of its turns.

        Each turn has another: a closure that was given up may still wait at its own.
        """
        handles = tf.stack([queue.queue_ref for queue in self._tokens])
        return tf.gather(handles, member * _TURNS + turn % _TURNS)

    def _show(self, state: _State) -> tf.Operation:
        numbers = tf.concat([[state.round, state.dropped], state.standings], 0)
        return self._status.assign(numbers, read_value=False)


def _event(kind: _Kind, member: Any, turn: Any) -> tf.Tensor:
    numbers = [tf.cast(number, tf.float64) for number in (kind, member, turn)]
    return tf.concat([numbers, tf.zeros([FIELDS - 2 + _CHANGE], tf.float64)], 0)


def _count(standings: tf.Tensor, standing: Standing) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(tf.equal(standings, standing), tf.int32))


def _int64(number: int) -> tf.Tensor:
    return tf.constant(number, tf.int64)
