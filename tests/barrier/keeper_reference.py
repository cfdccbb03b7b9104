"""The keepers of rounds and clocks in plain Python, from the words of docs/modes.md.

Nothing here is taken from the keepers that it is held against.
"""

import dataclasses

AWAY, AWAITED, ARRIVED, LATE = range(4)
EXPECT, LEAVE, BEGIN, CONTRIBUTE = range(4)
DISPLACED, MISSED = -1, -2
STRAY = -1


@dataclasses.dataclass
class Member:
    standing: int = AWAY
    turn: int = 0
    clock: int = 0


class Keeper:
    """What both have in common; tokens are (member, turn, round, taken)."""

    def __init__(self, members):
        self.members = [Member() for _ in range(members)]
        self.given = []
        self.dropped = 0

    def take(self, kind, number, turn, round_):
        """Takes an event."""
        member = self.members[number]
        if kind == EXPECT and member.standing == AWAY:
            self.joins(member)
        elif kind == LEAVE and member.standing != ARRIVED:
            member.standing = AWAY
        elif kind == BEGIN and turn < member.turn:
            self.given.append((number, turn, DISPLACED, 0))
        elif kind == BEGIN:
            if member.standing == ARRIVED:
                self.given.append((number, member.turn, DISPLACED, 0))
            self.given.append((number, turn, self.open, 0))
            if member.standing == AWAY:
                self.joins(member)
            member.standing, member.turn = AWAITED, turn
        elif kind == CONTRIBUTE and turn != member.turn:
            self.strays(number)
            self.given.append((number, turn, DISPLACED, 0))
        elif kind == CONTRIBUTE:
            self.contributes(number, member, round_)

    def joins(self, member):
        member.standing = AWAITED

    def strays(self, number):
        pass

    def standings(self):
        return [member.standing for member in self.members]

    def let_go(self, number):
        self.members[number].standing = AWAITED
        self.given.append((number, self.members[number].turn, self.open, 1))


class RoundsKeeper(Keeper):
    """Rounds; with backups they close without waiting for everybody.

    Attributes:
        open: Number of the open round.
        closes: Called with the round and the turn of each member that it takes.
    """

    def __init__(self, members, backups=0, closes=lambda round_, taken: None):
        super().__init__(members)
        self.open, self.backups, self.closes = 0, backups, closes

    def contributes(self, number, member, round_):
        if round_ == self.open:
            member.standing = ARRIVED
            return
        self.dropped += round_ >= 0
        if self.backups and member.standing != ARRIVED:
            member.standing = AWAITED
        self.given.append((number, member.turn, self.open if self.backups else MISSED, 0))

    def can_close(self):
        arrived, awaited = (self.standings().count(each) for each in (ARRIVED, AWAITED))
        return arrived > 0 and (awaited == 0 or arrived >= len(self.members) - self.backups)

    def taken(self):
        """The turns of those whose contributions the open round takes, by member."""
        both = enumerate(self.members)
        return {k: member.turn for k, member in both if member.standing == ARRIVED}

    def close(self):
        """Opens the next round, once every ps has applied this one."""
        taken = self.taken()
        self.open += 1
        for member in self.members:
            if member.standing == AWAITED:
                member.standing = LATE
        for number in taken:
            self.let_go(number)


class ClocksKeeper(Keeper):
    """Clocks: nobody is more than `bound` steps ahead of the slowest.

    Attributes:
        open: Number of steps of all.
        recorded: Steps of each member.
        strayed: Steps of closures that had lost their place.
    """

    def __init__(self, members, bound):
        super().__init__(members)
        self.open, self.strayed, self.bound = 0, 0, bound
        self.recorded = [0] * members

    def slowest(self):
        present = [each.clock for each in self.members if each.standing != AWAY]
        return min(present, default=max(each.clock for each in self.members))

    def joins(self, member):
        member.clock = self.slowest()
        super().joins(member)

    def strays(self, number):
        self.strayed += 1

    def contributes(self, number, member, round_):
        if member.standing == AWAY:
            self.joins(member)
        member.standing, member.clock = ARRIVED, member.clock + 1
        self.open += 1
        self.recorded[number] += 1

    def take(self, *event):
        super().take(*event)
        slowest = self.slowest()
        for number, member in enumerate(self.members):
            if member.standing == ARRIVED and member.clock - slowest <= self.bound:
                self.let_go(number)
