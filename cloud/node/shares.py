"""Which of a job's tasks each of N machines has."""

from collections.abc import Mapping
from typing import NamedTuple


class Shares(NamedTuple):
    """The numbers of a job's tasks and machines."""

    nodes: int
    workers: int
    ps: int

    def counts(self, rank: int) -> dict[str, int]:
        """Number of a machine's tasks by job.

        The chief is on the first. Of workers that are left over the last machines have one each; of
        ps those behind the first.
        """
        return {
            "chief": int(not rank),
            "worker": self._of(self.workers, self.nodes - 1 - rank),
            "ps": self._of(self.ps, (rank - 1) % self.nodes),
        }

    def indices(self, rank: int) -> Mapping[str, range]:
        """Indices of a machine's tasks by job."""
        before = [self.counts(other) for other in range(rank)]
        found = {}
        for job, count in self.counts(rank).items():
            first = sum(each[job] for each in before)
            found[job] = range(first, first + count)
        return found

    def _of(self, total: int, turn: int) -> int:
        each, left = divmod(total, self.nodes)
        return each + (turn < left)
