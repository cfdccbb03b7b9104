"""A worker's work where there are no ps: it trains with the chief until that is done."""

import concurrent.futures
import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable

from tfps.allreduce.coordinator import ReplicaCoordinator, ReplicaFollower
from tfps.allreduce.group import LostReplicaError, ReplicaExecutor, ReplicaGroup
from tfps.cluster.liveness import probe
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.server import ServerOptions, is_done, watch_for_end_of_chief
from tfps.cluster.spec import Cluster
from tfps.job_dir import JobDir
from tfps.job_dir.task_files import PreemptionNotices
from tfps.job_dir.task_name import TaskName
from tfps.leases.queue import LeaseQueue
from trainer.chief.engine import Engine, evaluation_pieces, replica_fingerprint
from trainer.chief.interruption import has_restarted, restart_process
from trainer.chief.run_inputs import RunInputs

_log = logging.getLogger(__name__)


class _EndError(Exception):
    """The chief is done, or this replica may go."""


@dataclasses.dataclass
class ReplicaWorker:
    """One worker. When another replica is lost, its process begins again, and waits for all."""

    cluster: Cluster
    job_dir: JobDir
    options: ServerOptions
    stall_seconds: float
    asked_to_end: threading.Event
    hint: str  # how the collectives communicate
    _leaves_at: float | None = dataclasses.field(default=None, init=False)
    _has_joined: bool = dataclasses.field(default=False, init=False)

    def run(self, check: Callable[[], RunInputs]) -> None:
        """Trains until the chief is done, or this task was asked to end and may.

        `check` gathers the inputs once the replicas are together: TensorFlow must not be used
        before.
        """
        self._notices = PreemptionNotices(self.job_dir)
        self._notices.clear(self.cluster.task)  # what it left behind when it was killed
        self._end_of_chief = self._watch_chief()
        try:
            self._follow(check)
        except _EndError:
            _log.info("%s ends", self.cluster.task)
        except LostReplicaError as lost:
            if (self._has_joined or has_restarted()) and is_done(self.job_dir):
                _log.info("%s ends: the chief is done", self.cluster.task)
            elif not self.asked_to_end.is_set():
                _log.warning("%s; beginning again, from the last checkpoint", lost)
                restart_process()

    def _follow(self, check: Callable[[], RunInputs]) -> None:
        cluster = self.cluster
        _log.info("%s waits for %d other replicas", cluster.name, len(cluster.workers))
        executor = ReplicaExecutor(ReplicaGroup.join(cluster, self._poll, self.hint))
        self._has_joined = True
        inputs = check()
        # The chief asks all the others.
        monitor = TaskMonitor({TaskName("chief", 0): cluster.chief[0]})
        monitor.start()
        engine = Engine.build(inputs, executor, monitor, self.stall_seconds)
        assert isinstance(engine.coordinator, ReplicaCoordinator)
        replica, mine = engine.coordinator.replica, replica_fingerprint(inputs, engine.store)
        pieces = functools.partial(evaluation_pieces, inputs)
        queue = functools.partial(LeaseQueue.of, inputs.settings.experiment, inputs.data.train)
        ReplicaFollower(replica, mine, queue, pieces).run(self._poll)

    def _watch_chief(self) -> concurrent.futures.Future:
        """Done when the chief is, or holds the error if it stays away."""
        options = self.options
        if has_restarted():  # it has been there
            options = dataclasses.replace(options, chief_wait_seconds=options.chief_lost_seconds)
        return watch_for_end_of_chief(self.cluster, self.job_dir, options)

    def _poll(self) -> None:
        """Ends the wait for others when there is nothing to wait for."""
        if self._end_of_chief.done():
            self._end_of_chief.result()
            raise _EndError
        if not self.asked_to_end.is_set():
            return
        if not self._has_joined or not probe(self.cluster.chief[0]).answers:
            raise _EndError
        if self._leaves_at is None:
            self._leaves_at = time.monotonic() + self.options.grace_seconds
            _log.info("%s was asked to end: it waits for a checkpoint", self.cluster.task)
            self._notices.post(self.cluster.task)
        is_saved = not self._notices.is_posted(self.cluster.task)
        if is_saved or time.monotonic() > self._leaves_at:
            raise _EndError
