"""What a member of a barrier holds: the leave to pull once.

A token is `[FIELDS]` int64: the member, its turn (the number of the attempt for which its closure
works), the round, and whether what it contributed before was taken.
"""

MEMBER, TURN, ROUND, TAKEN = range(4)
FIELDS = 4

# In the place of a round:
DISPLACED = -1  # another closure has taken the member's place: this one ends
MISSED = -2  # the round has closed without it: it goes on with what was recorded, or begins again

STRAY = -1  # in the place of a turn: that of every closure that knows that it is displaced
