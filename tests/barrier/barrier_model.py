"""Closures, ps and a barrier loop, in plain Python, whose messages arrive in any order.

A closure is a generator that stops wherever others can come in between. What it does on the first
ps without waiting for anybody is one step: look whether it holds its place, announce, queue for a
token.
"""

import collections
import dataclasses
import functools

from tests.barrier.loop_reference import (
    AWAITED,
    BEGIN,
    BEGIN_AGAIN,
    CONTRIBUTE,
    DISPLACED,
    EXPECT,
    LEAVE,
    ClocksReference,
    RoundsReference,
)

QUEUES = 2  # queues of tokens by member: fewer than there are, so that more of them meet
UNROLL = 2
PS = 2


class TokenQueue:
    """Who waits first is served first."""

    def __init__(self):
        self.tokens, self.waiting = collections.deque(), collections.deque()

    def put(self, token):
        self.tokens.append(token)
        self.serve()

    def wait(self, closure):
        self.waiting.append(closure)
        self.serve()

    def serve(self):
        while self.tokens and self.waiting:
            self.waiting.popleft().token = self.tokens.popleft()


@dataclasses.dataclass(eq=False)
class Closure:
    """One that works for a member.

    Attributes:
        member: The member.
        attempt: The number of its attempt, once it has one.
        token: What it has taken from a queue, until it looks at it.
        waits: Whether it waits for one.
        run: The rest of what it does.
        lease: Number of the member's lease.
        is_over: Whether it has come to its end, or was killed.
        is_stopped: Whether its worker's process is.
    """

    member: int
    lease: int
    attempt: int = 0
    token: tuple | None = None
    waits: bool = False
    run: object = None
    is_over: bool = False
    is_stopped: bool = False

    @property
    def can_move(self):
        is_waiting = self.waits and self.token is None
        return not (self.is_over or self.is_stopped or is_waiting)


class Model:
    """A barrier with everything around it.

    Attributes:
        closures: All that were ever begun.
        visits: How often each ps has applied each batch (member, lease, number in the lease).
    """

    def __init__(self, members, batches, backups=0, bound=None, loop=None):
        self.has_rounds = bound is None
        self.backups, self.batches = backups, batches
        if self.has_rounds:
            self.loop = (loop or RoundsReference)(members, backups)
        else:
            self.loop = (loop or ClocksReference)(members, bound)
        self.messages = collections.deque()
        self.queues = collections.defaultdict(TokenQueue)
        self.sent = [[] for _ in range(PS)]
        self.visits = [collections.Counter() for _ in range(PS)]
        self.numbers, self.leases = [0] * members, [0] * members
        self.steps = [0] * members
        self.orphaned_batches = 0
        self.recorded = collections.Counter()
        self.unrecorded = 0  # pushes of closures that were killed before they announced them
        self.closures, self.current = [], [None] * members
        self.to_apply, self.taken = set(), {}

    # What the chief does.

    def begin(self, member):
        """Gives a member a closure: for a new lease, or for one whose worker was lost."""
        before = self.current[member]
        if before is None or (before.is_over and self.steps[member] == self.batches):
            self.leases[member] += 1
            self.numbers[member] += 1
            self.steps[member] = 0
            self.tell(EXPECT, member)
        closure = Closure(member, self.leases[member])
        closure.run = self.run(closure)
        self.closures.append(closure)
        self.current[member] = closure

    def tell(self, kind, member):
        self.messages.append((kind, member, 0, 0, None))

    def kill(self, closure, is_cancelled):
        """Its worker dies; what waits for it on a ps continues waiting, or is cancelled."""
        closure.is_over = True
        closure.run.close()
        if is_cancelled:
            for queue in self.queues.values():
                if closure in queue.waiting:
                    queue.waiting.remove(closure)

    # What closures do.

    def run(self, closure):
        """A closure: it yields wherever others may come in between."""
        member = closure.member
        if closure.lease != self.leases[member]:  # the lease that it was to train is over
            closure.is_over = True
            return
        self.numbers[member] += 1
        closure.attempt = self.numbers[member]
        yield
        token, step = yield from self.join(closure)
        while step < self.batches and token[2] >= 0:
            token, step = yield from self.train_from(closure, token, step)
            if token[2] == BEGIN_AGAIN:
                token, step = yield from self.join(closure)
        closure.is_over = True
        yield

    def join(self, closure):
        member, attempt = closure.member, self.attempt_now(closure)
        self.messages.append((BEGIN, member, attempt, 0, None))
        token = None
        while token is None or token[1] != attempt:
            token = yield from self.wait(closure, attempt)
        return token, self.steps[member]

    def train_from(self, closure, token, step):
        for steps in (UNROLL, 1):
            while step + steps <= self.batches and token[2] >= 0:
                for _ in range(steps):
                    token = yield from self.train(closure, token, step)
                    step += token[3] if self.backups else 1
        return token, step

    def train(self, closure, token, step):
        batch = closure.member, closure.lease, step
        yield
        for part in sorted(range(PS), key=lambda part: hash((batch, part, len(self.closures)))):
            if self.has_rounds:
                self.sent[part].append((token[0], token[1], token[2], batch))
            else:
                self.visits[part][batch] += 1
                self.unrecorded += part == 0
            yield
        attempt = self.attempt_now(closure)
        self.messages.append((CONTRIBUTE, token[0], attempt, token[2], batch))
        self.unrecorded -= not self.has_rounds
        return (yield from self.wait(closure, attempt))

    def attempt_now(self, closure):
        return closure.attempt if self.numbers[closure.member] == closure.attempt else DISPLACED

    def wait(self, closure, attempt):
        closure.waits = True
        self.queue(closure.member, attempt).wait(closure)
        yield
        token, closure.token, closure.waits = closure.token, None, False
        return token

    def queue(self, member, attempt):
        return self.queues[None if attempt == DISPLACED else (member, attempt % QUEUES)]

    def move(self, closure):
        next(closure.run, None)

    # What the barrier loop and the ps do.

    def take_message(self):
        """Takes a message, and records what a contribution adds to its lease."""
        *message, batch = self.messages.popleft()
        kind, member, attempt, _ = message
        own = attempt == self.loop.members[member].attempt
        self.loop.take(*message)
        if kind == CONTRIBUTE and not self.has_rounds:
            if own:
                self.steps[member] += 1
                self.recorded[batch] += 1
            else:
                self.orphaned_batches += 1
        self.give()
        if self.has_rounds and self.loop.can_close():
            self.taken = self.loop.taken()
            self.to_apply = set(range(PS))

    def apply(self, part):
        """Applies what a round takes; throws away the rest."""
        for member, attempt, round_, batch in self.sent[part]:
            if self.taken.get(member) == attempt and round_ == self.loop.open:
                self.visits[part][batch] += 1
        self.sent[part].clear()
        self.to_apply.remove(part)
        if not self.to_apply:
            for member in self.taken:
                batch = member, self.leases[member], self.steps[member]
                self.recorded[batch] += 1
                self.steps[member] += 1
            self.loop.close()
            self.give()
            if self.loop.can_close():
                self.taken, self.to_apply = self.loop.taken(), set(range(PS))

    def give(self):
        for token in self.loop.given:
            self.queue(token[0], token[1]).put(token)
        self.loop.given.clear()

    # What must be so.

    def check(self):
        """Holds what was applied against what was recorded."""
        if self.has_rounds and not self.to_apply:
            assert all(applied == self.recorded for applied in self.visits)
            assert set(self.recorded.values()) <= {1}
        if not self.has_rounds:
            waiting = sum(message[0] == CONTRIBUTE for message in self.messages)
            counted = self.recorded.total() + self.orphaned_batches + self.unrecorded + waiting
            assert self.visits[0].total() == counted
            assert all(count == 1 for count in self.recorded.values())

    def settle(self):
        """Lets everything come to its end; the chief does what it does for lost workers."""
        for closure in self.closures:
            closure.is_stopped = False
        for _ in range(200 * (len(self.closures) + len(self.numbers))):
            if not self.advance() and not self.hint():
                break
        else:
            raise AssertionError("it continues for ever")
        assert all(closure.is_over for closure in self.closures)
        assert all(steps == self.batches for steps in self.steps)
        for part in range(PS):
            least, most = 1, 1 if self.has_rounds else 1000
            for member, leases in enumerate(self.leases):
                for lease in range(1, leases + 1):
                    for number in range(self.batches):
                        assert least <= self.visits[part][member, lease, number] <= most

    def happen(self, number):
        """One of the things that can be next does."""
        nexts = [functools.partial(self.move, each) for each in self.closures if each.can_move]
        nexts += [functools.partial(self.apply, part) for part in sorted(self.to_apply)]
        if self.messages and not self.to_apply:
            nexts.append(self.take_message)
        if nexts:
            nexts[number % len(nexts)]()

    def advance(self):
        """Moves everything that can move, once."""
        moving = [closure for closure in self.closures if closure.can_move]
        for closure in moving:
            self.move(closure)
        if self.to_apply:
            self.apply(min(self.to_apply))
        elif self.messages:
            self.take_message()
        else:
            return bool(moving)
        return True

    def hint(self):
        """Nothing moves: what is lost is begun again, and nobody waits for what is done."""
        for member, closure in enumerate(self.current):
            is_done = closure is not None and closure.is_over and self.steps[member] == self.batches
            if closure is None or (closure.is_over and not is_done):
                self.begin(member)
                return True
            if is_done and self.loop.members[member].state == AWAITED:
                self.tell(LEAVE, member)
                return True
        return False
