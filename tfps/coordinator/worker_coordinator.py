"""Hands leases to workers and waits for them."""

import collections
import concurrent.futures
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfps.barrier.barrier import BarrierMembers
from tfps.cluster import failures
from tfps.cluster.liveness import Liveness
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.coordinator import (
    POLL_SECONDS,
    Gradients,
    TrainingMeter,
    not_finite,
)
from tfps.coordinator.executor import Executor, RepeatedFailure
from tfps.coordinator.lanes import Lanes, LeasePrefetcher, lanes_of
from tfps.data.record_source import Piece, RecordSource
from tfps.errors import RunError
from tfps.evaluation.metrics import EvaluatedPiece
from tfps.job_dir.task_name import TaskName
from tfps.leases.bad_record_log import explain_failure
from tfps.leases.lease import Lease
from tfps.leases.progress import LaneProgress, LeaseProgress
from tfps.leases.queue import LeaseQueue
from tfps.worker.closures import Closures, LeaseResult

_STUCK = "look in its log, and whether it can read the shard and reach every ps"
_APART_SECONDS = 1e-4  # between two looks at the lanes, for each: 0.2 s where there are 2,000
# Pieces that are evaluated ahead of the one whose result comes next: one for each lane, and of
# more so many for each, and in all, as their results are held until their turn comes.
_AHEAD_OF_LANE, _MOST_AHEAD = 2, 64
_LOSS_SECONDS = 5.0  # for the monitor to see what cancelled a closure
_QUIET_SECONDS = 10.0  # without a batch, after which, and as often, it is asked who the ps are
_log = logging.getLogger(__name__)


class Diagnosis:
    """Knows which worker has held which lease for how long without training a batch of it."""

    def __init__(self, monitor: TaskMonitor):
        self._monitor = monitor
        self._held: dict[int, tuple[Lease, LaneProgress, float]] = {}

    def note(self, leases: Mapping[int, Lease], rows: Sequence[LaneProgress]) -> None:
        before, now = self._held, time.monotonic()
        self._held = {}
        for lane, lease in leases.items():
            if rows[lane].worker >= 0:
                held, seen = (lease, rows[lane]), before.get(lane)
                is_same = seen is not None and seen[:2] == held
                self._held[lane] = (*held, seen[2] if seen and is_same else now)

    @property
    def longest(self) -> float:
        """For how many seconds some lease has been held without a batch."""
        return max((time.monotonic() - since for *_, since in self._held.values()), default=0.0)

    def stall(self, what: str, seconds: float, waited_for: str = "") -> RunError:
        """The error of a wait that was too long for `what`, such as "batch was trained".

        `waited_for` is a clause on what a worker has, where that is no lease.
        """
        clauses = [self._holder(*held) for held in self._held.values()]
        reported = {TaskName("worker", row.worker) for _, row, _ in self._held.values()}
        for outage in self._monitor.outages():
            if outage.task not in reported:
                clauses.append(f"{outage}: {_describe(outage.liveness, outage.seconds)}")
        if not self._held:
            clauses.insert(0, waited_for or "no worker has begun what it was given")
        if len(clauses) == 1 and not self._held:
            clauses.append("every task answers; look in the workers' logs")
        return RunError(
            f"no {what} for {seconds:.0f} s: {'; '.join(clauses)}; --stall_seconds allows more time"
        )

    def _holder(self, lease: Lease, row: LaneProgress, since: float) -> str:
        task = TaskName("worker", row.worker)
        outage = self._monitor.outage(task)
        state = _describe(outage.liveness, outage.seconds) if outage else f"it answers ({_STUCK})"
        return (
            f"{self._monitor.place(task)} has held {lease} for {time.monotonic() - since:.0f} s, "
            f"{row.steps} batches trained: {state}"
        )


def _describe(liveness: Liveness, seconds: float) -> str:
    return f"{liveness.value} for {seconds:.0f} s ({liveness.what_to_do})"


class WorkerCoordinator:
    """Has each lease trained by one worker; bounded in flight, every wait with a limit."""

    def __init__(
        self,
        executor: Executor,
        closures: Closures,
        progress: LeaseProgress,
        monitor: TaskMonitor,
        stall_seconds: float,
        unrecorded_batches: Callable[[], int],
        members: BarrierMembers | None = None,
        on_done: Callable[[LeaseResult], None] = lambda result: None,
    ):
        self.meter = TrainingMeter(executor.workers, closures.judged)
        self._executor = executor
        self._closures = closures
        self._progress = progress
        self._members = members
        self._monitor = monitor
        self._ps_calls = PsCalls(monitor, stall_seconds)
        self._unrecorded_batches = unrecorded_batches
        self._on_done = on_done
        self._diagnosis = Diagnosis(monitor)
        self._repeated_failure = RepeatedFailure(executor.workers, monitor)
        self._prefetcher = LeasePrefetcher(executor, closures)
        self._stall_seconds = stall_seconds
        self.lanes = Lanes(progress, self._ps_calls, lanes_of(executor, bool(members)))
        self._ended_early: dict[int, int] = {}  # closures that held a lane's lease to their end
        self._down: set[int] = set()
        self._next_question = 0.0  # on the monotonic clock
        self._orphaned = 0  # batches that `LeaseProgress.orphaned_batches` has reported

    def trace(self) -> None:
        """Traces what trains leases, which the first one would wait for."""
        self._executor.trace(self._closures.train)

    def train(
        self,
        queue: LeaseQueue,
        pause: Callable[[], bool],
        report: Callable[[TrainingMeter], None],
        due: float = math.inf,
    ) -> None:
        self.meter.begin(queue)
        last_examples, last_change = -1, time.monotonic()
        has_begun, next_look = False, 0.0
        while True:
            leases: list[Lease] = []
            while (
                len(leases) < self.lanes.free
                and not (has_begun and pause())
                and (lease := queue.take(self._steps_of_next(queue, leases, due)))
            ):
                leases.append(lease)
                has_begun = True
            self.assign(leases)
            if self.lanes.are_empty:
                break
            for future in self.lanes.wait(POLL_SECONDS):
                self.handle_result(future, queue)
            if time.monotonic() < next_look and not self.lanes.are_empty:
                continue
            self._monitor.refuse_lost_ps()
            self._measure(queue)
            report(self.meter)
            apart = min(_APART_SECONDS * len(self.lanes.rows), POLL_SECONDS)
            next_look = time.monotonic() + apart
            if self.meter.examples != last_examples:
                last_examples, last_change = self.meter.examples, time.monotonic()
                self._repeated_failure.forget()
            self._refuse_repeated_failure(f"training epoch {queue.epoch + 1}")
            without_batch = max(time.monotonic() - last_change, self._diagnosis.longest)
            self._refuse_stall(without_batch, "batch was trained")
        orphaned = self._ps_calls("reading progress", self._progress.orphaned_batches)
        queue.repeat_batches(orphaned - self._orphaned)
        self._orphaned = orphaned
        self.meter.pause(queue)

    def evaluate(self, pieces: Iterable[Piece]) -> Iterator[EvaluatedPiece]:
        todo, waiting = iter(pieces), collections.deque[tuple[concurrent.futures.Future, Piece]]()
        lanes = lanes_of(self._executor)
        ahead = lanes + min(_AHEAD_OF_LANE * lanes, _MOST_AHEAD)
        done, last_change = 0, time.monotonic()
        while True:
            for piece in itertools.islice(todo, ahead - len(waiting)):
                future = self._executor.schedule(self._closures.evaluate, piece.tensors())
                waiting.append((future, piece))
            if not waiting:
                return
            future, piece = waiting[0]
            concurrent.futures.wait([future], POLL_SECONDS)
            before, done = done, sum(each.done() for each, _ in waiting)
            if done > before:
                last_change = time.monotonic()
                self._repeated_failure.forget()
            if future.done():
                waiting.popleft()
                done -= 1
                found = self._result(future, "evaluation", piece.source)
                yield EvaluatedPiece(*found)
                last_change = time.monotonic()  # the caller may need long for each result
            else:
                self._refuse_no_end("evaluation", last_change, "record was evaluated", str(piece))

    def gradients(self, source: RecordSource, lease: Sequence[int]) -> Gradients:
        args = (source.pack(), tf.constant([*lease, 0], tf.int64))
        future = self._executor.schedule(self._closures.gradients, args)
        began = time.monotonic()
        while not future.done():
            concurrent.futures.wait([future], POLL_SECONDS)
            self._refuse_no_end("computing gradients", began, "gradient was computed")
        found: Gradients = self._result(future, "computing gradients", source)
        return found

    def assign(self, leases: Sequence[Lease]) -> None:
        given = self.lanes.prepare(leases)
        if self._members:
            self._members.work_for([*given, *self.lanes.leases])
        for lane, lease in given.items():
            self._ended_early[lane] = 0
            self._send(lane, lease)

    def handle_result(self, future: concurrent.futures.Future, queue: LeaseQueue) -> None:
        """Finishes a lease whose closure has ended, or sends it again."""
        lane, lease = self.lanes.arrived(future)
        doing = f"training epoch {lease.epoch + 1}"
        result = LeaseResult.unpack(self._result(future, doing, lease.source))
        self.meter.judged(result.judged)
        if result.bad_step >= 0:
            raise not_finite(f"at step {result.bad_step + 1} of {lease.where}")
        if lease.records_of(result.steps) >= lease.records:
            self._finish(lane, lease, result, queue)
            return
        worker = result.worker
        self.meter.worker_shares.trained(worker, 0, result.began, result.seconds, leases=0)
        if result.steps >= 0:  # the next batch cannot be read
            self._ended_early[lane] += 1
            first, end = queue.block_of(lease, result.steps)
            queue.bad_records.look(lease.shard, lease.source, first, end, doing)
            lease = queue.without_bad_records(lease)
        else:  # a closure whose worker was taken for lost has begun it again, and may be lost
            _log.info("%s was taken from worker %d: it is sent again", lease, worker)
        self._send(lane, lease)

    def _steps_of_next(self, queue: LeaseQueue, taken: Sequence[Lease], due: float) -> int:
        workers, seconds = len(self._executor.workers), due - time.monotonic()
        left, length = queue.batches_left, self.meter.lease_length
        if not self._members:
            return length.within(left, workers, seconds)
        left += sum(lease.batches for lease in taken)
        for lane, lease in self.lanes.leases.items():
            left += max(0, lease.batches - self.lanes.rows[lane].steps)
        return length.in_rounds(left, workers, seconds)

    def _send(self, lane: int, lease: Lease) -> None:
        place = self.lanes.place(lane)
        numbers = tf.constant([lease.first, lease.records, lease.seed, place], tf.int64)
        args = (lease.source.pack(), numbers)
        self.lanes.sent(self._executor.schedule(self._closures.train, args), lane, lease)

    def _finish(self, lane: int, lease: Lease, result: LeaseResult, queue: LeaseQueue) -> None:
        lost = result.attempts - 1 - self._ended_early[lane]
        records = lease.records - result.bad
        if lost:
            _log.info("%s: begun again %d times, done by worker %d", lease, lost, result.worker)
        if result.attempts == 1:  # Else it is not known how many of the steps are this closure's.
            self.meter.lease_length.measured(result.steps, result.seconds)
        self.meter.worker_shares.trained(result.worker, records, result.began, result.seconds)
        queue.finish(lease, records, result.bad)
        queue.repeat(lost * min(lease.records_of(self._unrecorded_batches()), records))
        self.meter.finished(result.loss_sum)
        self.lanes.release(lane)
        self._on_done(result)

    def _refuse_no_end(self, doing: str, since: float, what: str, waited_for: str = "") -> None:
        """Ends a wait without progress `since` (monotonic); `what` as "shard was evaluated"."""
        self._monitor.refuse_lost_ps()
        self._refuse_repeated_failure(doing)
        self._refuse_stall(time.monotonic() - since, what, waited_for)

    def _result(self, future: concurrent.futures.Future, doing: str, source: RecordSource) -> Any:
        error = future.exception()
        if error is None:
            return future.result()
        error = self._executor.root_error(error)
        if isinstance(error, tf.errors.CancelledError):  # for a reason that it does not name
            self._await_loss()
        raise explain_failure(error, doing, source, self._closures.schema) from None

    def _measure(self, queue: LeaseQueue) -> None:
        examples, loss = 0, 0.0
        held = self.lanes.leases
        if held:
            self.lanes.read()
            self._report_lost_workers()
            rows = self.lanes.rows
            self._prefetcher.update(held, rows, self.meter.lease_length.step_seconds)
            for lane, lease in held.items():
                examples += self.lanes.records_trained(lane, lease)
                loss += rows[lane].loss_sum
        if self._members and held:  # of several who wait, those for whom the others do
            awaited = self._members.poll(self.lanes.rows)
            held = {lane: held[lane] for lane in held if lane in awaited}
        self._diagnosis.note(held, self.lanes.rows)
        self.meter.measure(queue, examples, loss)

    def _report_lost_workers(self) -> None:
        """Says once per loss which lease a worker held."""
        down = {outage.task.index: outage for outage in self._monitor.down("worker")}
        for worker in down.keys() - self._down:
            for lane, lease in self.lanes.leases.items():
                if self.lanes.rows[lane].worker == worker:
                    done, place = self.lanes.records_trained(lane, lease), down[worker]
                    _log.warning("%s held %s: it continues after %d records", place, lease, done)
        self._down = set(down)

    def _await_loss(self) -> None:
        """Gives the monitor time to see a lost ps, which closures' failures show if it is back."""
        deadline = time.monotonic() + _LOSS_SECONDS
        while time.monotonic() < deadline:
            self._monitor.refuse_lost_ps()
            time.sleep(POLL_SECONDS)
        self._refuse_replaced_ps()
        self._repeated_failure.note(self._executor.retried())
        self._repeated_failure.refuse_lost_ps()

    def _refuse_replaced_ps(self) -> None:
        """Ends a wait for closures that wait for a ps that was there again before it was missed."""
        if replaced := self._executor.replaced_ps():
            raise failures.lost_ps(", ".join(map(self._monitor.place, replaced)))

    def _refuse_repeated_failure(self, doing: str) -> None:
        self._repeated_failure.note(self._executor.retried())
        self._repeated_failure.refuse(doing)

    def _refuse_stall(self, seconds: float, what: str, waited_for: str = "") -> None:
        if seconds >= _QUIET_SECONDS and time.monotonic() >= self._next_question:
            self._refuse_replaced_ps()
            self._next_question = time.monotonic() + _QUIET_SECONDS
        if seconds >= self._stall_seconds:
            self._monitor.wait_for_pending_probes()
            self._monitor.refuse_lost_ps()
            raise self._diagnosis.stall(what, seconds, waited_for)
