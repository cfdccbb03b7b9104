"""The barrier loops of rounds and clocks in plain Python, from the words of docs/modes.md.

Nothing here is taken from the loops that it is held against.
"""

import dataclasses

AWAY, AWAITED, ARRIVED, LATE = range(4)
EXPECT, LEAVE, BEGIN, CONTRIBUTE = range(4)
END, BEGIN_AGAIN = -1, -2  # in the place of a round
DISPLACED = -1  # in the place of an attempt


@dataclasses.dataclass
class Member:
    state: int = AWAY
    attempt: int = 0
    clock: int = 0


class ReferenceLoop:
    """What both have in common; tokens are (member, attempt, round, taken)."""

    def __init__(self, members):
        self.members = [Member() for _ in range(members)]
        self.given = []
        self.dropped = 0

    def take(self, kind, number, attempt, round_):
        """Takes a message."""
        member = self.members[number]
        if kind == EXPECT and member.state == AWAY:
            self.joins(member)
        elif kind == LEAVE and member.state != ARRIVED:
            member.state = AWAY
        elif kind == BEGIN and attempt < member.attempt:
            self.given.append((number, attempt, END, 0))
        elif kind == BEGIN:
            if member.state == ARRIVED:
                self.given.append((number, member.attempt, END, 0))
            self.given.append((number, attempt, self.open, 0))
            if member.state == AWAY:
                self.joins(member)
            member.state, member.attempt = AWAITED, attempt
        elif kind == CONTRIBUTE and attempt != member.attempt:
            self.is_displaced(number)
            self.given.append((number, attempt, END, 0))
        elif kind == CONTRIBUTE:
            self.contributes(number, member, round_)

    def joins(self, member):
        member.state = AWAITED

    def is_displaced(self, number):
        pass

    def states(self):
        return [member.state for member in self.members]

    def let_go(self, number):
        self.members[number].state = AWAITED
        self.given.append((number, self.members[number].attempt, self.open, 1))


class RoundsReference(ReferenceLoop):
    """Rounds; with backups they close without waiting for everybody.

    Attributes:
        open: Number of the open round.
    """

    def __init__(self, members, backups=0):
        super().__init__(members)
        self.open, self.backups = 0, backups

    def contributes(self, number, member, round_):
        if round_ == self.open:
            member.state = ARRIVED
            return
        self.dropped += round_ >= 0
        if self.backups and member.state != ARRIVED:
            member.state = AWAITED
        self.given.append((number, member.attempt, self.open if self.backups else BEGIN_AGAIN, 0))

    def can_close(self):
        arrived, awaited = (self.states().count(each) for each in (ARRIVED, AWAITED))
        return arrived > 0 and (awaited == 0 or arrived >= len(self.members) - self.backups)

    def taken(self):
        """The attempts of those whose contributions the open round takes, by member."""
        both = enumerate(self.members)
        return {k: member.attempt for k, member in both if member.state == ARRIVED}

    def close(self):
        """Opens the next round, once every ps has applied this one."""
        taken = self.taken()
        self.open += 1
        for member in self.members:
            if member.state == AWAITED:
                member.state = LATE
        for number in taken:
            self.let_go(number)


class ClocksReference(ReferenceLoop):
    """Clocks: nobody is more than `bound` steps ahead of the slowest.

    Attributes:
        open: Number of steps of all.
        recorded: Steps of each member.
        orphaned_batches: Those of closures that had lost their place.
    """

    def __init__(self, members, bound):
        super().__init__(members)
        self.open, self.orphaned_batches, self.bound = 0, 0, bound
        self.recorded = [0] * members

    def slowest(self):
        present = [each.clock for each in self.members if each.state != AWAY]
        return min(present, default=max(each.clock for each in self.members))

    def joins(self, member):
        member.clock = self.slowest()
        super().joins(member)

    def is_displaced(self, number):
        self.orphaned_batches += 1

    def contributes(self, number, member, round_):
        if member.state == AWAY:
            self.joins(member)
        member.state, member.clock = ARRIVED, member.clock + 1
        self.open += 1
        self.recorded[number] += 1

    def take(self, *message):
        super().take(*message)
        slowest = self.slowest()
        for number, member in enumerate(self.members):
            if member.state == ARRIVED and member.clock - slowest <= self.bound:
                self.let_go(number)
