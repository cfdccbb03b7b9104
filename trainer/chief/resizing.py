"""A run that is asked to have another number of tasks."""

import logging
import os

from tfps.cluster.spec import Cluster
from tfps.coordinator.coordinator import Throughput
from tfps.job_dir import JobDir, size
from tfps.job_dir.size import Size
from tfps.job_dir.size_request import SizeRequest
from trainer.chief.autoscaling import Autoscaling

_log = logging.getLogger(__name__)


class ResizedError(Exception):
    """All is saved, and the launcher is to start so many tasks."""

    def __init__(self, size: Size):
        super().__init__(f"the run is to have {size}")
        self.size = size


class Resizing:
    """Answers requests for another size, and has one chosen where the run is to choose."""

    def __init__(
        self,
        job_dir: JobDir,
        cluster: Cluster,
        min_workers: int,
        autoscaling: Autoscaling | None = None,
    ):
        self._request = SizeRequest(job_dir)
        self._size = Size(len(cluster.workers) - cluster.chief_works, len(cluster.ps))
        self._least = min_workers
        self._autoscaling = autoscaling
        self._is_possible = size.VARIABLE in os.environ

    def began(self) -> None:
        """Tells who has asked that the run has begun."""
        self._request.began(self._size)

    def leaving(self) -> None:
        """Notes that the chief ends for what was asked."""
        self._request.take()

    def measure(self, throughput: Throughput) -> None:
        """Chooses from now on by how fast the run is, which counts from 0."""
        if self._autoscaling:
            self._autoscaling.begin(throughput)

    def asked(self, is_whole: bool = True) -> Size | None:
        """The size that the run is to have instead; None if it cannot have it, or keeps its own.

        `is_whole` says whether all tasks answer.
        """
        wanted = self._request.waiting()
        if wanted is None:
            return self._chosen(is_whole)
        if why := self._refusal(wanted):
            _log.warning("asked for %s: %s", wanted, why)
            self._request.answer(why)
            return None
        return wanted

    def _chosen(self, is_whole: bool) -> Size | None:
        if self._autoscaling is None:
            return None
        wanted = self._autoscaling.wanted(is_whole)
        return None if wanted == self._size else wanted

    def _refusal(self, wanted: Size) -> str:
        if wanted == self._size:
            return f"the run has {wanted} already"
        if not self._is_possible:
            return (
                "what has started this run cannot change its size: end it, and start it again with "
                "other numbers; it resumes"
            )
        if bool(wanted.ps) != bool(self._size.ps):
            kind = "with ps needs one" if self._size.ps else "without ps has none: --ps=0"
            return f"a run {kind}"
        if wanted.workers < self._least:
            return f"--min_workers={self._least} of the run is more than {wanted.workers}"
        return ""


def leave_to_launcher(wanted: Size) -> None:
    """Has the launcher start another number of tasks once this process has ended."""
    size.leave(os.environ[size.VARIABLE], wanted)
