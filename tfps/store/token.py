"""What a member of a round holds: the leave to pull once.

A token is `[FIELDS]` int64: the member, its turn (how often a closure began to work for it), the
round, and whether what it contributed before was taken. The round of a closure whose place another
has taken is -1.
"""

MEMBER, TURN, ROUND, TAKEN = range(4)
FIELDS = 4
