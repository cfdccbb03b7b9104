"""Hands leases to workers and waits for them."""

import concurrent.futures
import functools
import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfps.barrier.membership import BarrierMembers
from tfps.cluster import failures
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.coordinator.executor import Executor
from tfps.coordinator.lease_prefetch import LeasePrefetcher
from tfps.coordinator.progress import Progress, ProgressMeter, WorkerShares
from tfps.coordinator.stall import Diagnosis
from tfps.data import bad_records
from tfps.data.record_source import RecordSource
from tfps.errors import RunError
from tfps.evaluation.results import EvaluationResult
from tfps.experiment.experiment import Train
from tfps.leases.lease import Lease
from tfps.leases.lease_length import LeaseLength
from tfps.leases.progress import LeaseProgress, SlotProgress
from tfps.leases.queue import LeaseQueue
from tfps.worker.closures import Closures

POLL_SECONDS = 0.25
_LOSS_SECONDS = 5.0  # for the monitor to see what cancelled a closure
_log = logging.getLogger(__name__)


class Coordinator:
    """The chief's loop over closures: bounded in flight, every wait with a limit.

    Attributes:
        throughput: Speed of the training at steady state.
        lease_length: Steps per lease.
        worker_shares: Which worker trained how much of what this coordinator gave out.
    """

    def __init__(
        self,
        executor: Executor,
        closures: Closures,
        progress: LeaseProgress,
        monitor: TaskMonitor,
        train: Train,
        stall_seconds: float,
        unrecorded_batches: int,
        members: BarrierMembers | None = None,
    ):
        self._meter = ProgressMeter()
        self.throughput = self._meter.throughput
        self.lease_length = LeaseLength()
        self.worker_shares = WorkerShares(executor.workers)
        self._executor = executor
        self._closures = closures
        self._progress = progress
        self._members = members
        self._monitor = monitor
        self._ps_calls = PsCalls(monitor, stall_seconds)
        self._batch_size = train.batch_size
        # What a lost worker may have pushed without having recorded it.
        self._most_unrecorded = train.batch_size * unrecorded_batches
        self._diagnosis = Diagnosis(monitor)
        self._prefetcher = LeasePrefetcher(executor, closures, train.batch_size)
        self._stall_seconds = stall_seconds
        self._in_flight: dict[concurrent.futures.Future, tuple[int, Lease]] = {}
        leases = slots(executor, bool(members))
        self._free_slots = list(range(leases))
        self._lease_numbers = itertools.count(1)
        self._places = [0] * leases  # of the lease in each slot
        self._ended_early = [0] * leases  # closures of that lease that held it to their end
        self._ended: set[int] = set()  # free slots whose last lease may still be begun again
        self._rows: list[SlotProgress] = []
        self._down: set[str] = set()
        self._strayed = 0  # batches that `LeaseProgress.strayed` has told

    def train(
        self,
        queue: LeaseQueue,
        pause: Callable[[], bool],
        report: Callable[[Progress], None],
        due: float = math.inf,
    ) -> None:
        """Trains leases until the epoch is finished or a pause is asked for.

        Returns with no lease in flight.

        Args:
            queue: Where leases come from and go to.
            pause: Asked before each lease but the first is given out; True lets those in flight
                finish and ends the training.
            report: Called several times a second.
            due: When, on the monotonic clock, `pause` will be true if not before.

        Raises:
            UserError: If a shard cannot be used.
            LostPsError: If a ps is lost.
            RunError: If the loss is not finite or nothing moves any more.
        """
        self._meter.begin(queue)
        self.worker_shares.begin()
        last_examples, last_change = -1, time.monotonic()
        has_begun = False
        while True:
            leases: list[Lease] = []
            while (
                len(leases) < len(self._free_slots)
                and not (has_begun and pause())
                and (lease := queue.take(self._steps_of_next(queue, leases, due)))
            ):
                leases.append(lease)
                has_begun = True
            self._schedule(leases)
            if not self._in_flight:
                break
            done, _ = concurrent.futures.wait(
                self._in_flight, POLL_SECONDS, concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                self._finish(future, queue)
            self._refuse_lost_ps()
            progress = self._measure(queue)
            report(progress)
            if progress.examples != last_examples:
                last_examples, last_change = progress.examples, time.monotonic()
            without_batch = max(time.monotonic() - last_change, self._diagnosis.longest)
            self._refuse_stall(without_batch, "batch was trained")
        strayed = self._ps_calls("reading progress", self._progress.strayed)
        queue.repeat((strayed - self._strayed) * self._batch_size)
        self._strayed = strayed
        self._meter.pause(queue)

    def evaluate(self, shards: Sequence[tuple[RecordSource, int]]) -> EvaluationResult:
        """Evaluates shards on the workers.

        Args:
            shards: Source, with its end, and number of records of each shard that has any.

        Raises:
            UserError: If a shard cannot be used.
            LostPsError: If a ps is lost.
            RunError: If nothing moves any more.
        """
        results: dict[int, Any] = {}
        waiting: dict[concurrent.futures.Future, int] = {}
        todo = iter(enumerate(shards))
        last_change = time.monotonic()
        while len(results) < len(shards):
            free = slots(self._executor) - len(waiting)
            for index, (source, count) in itertools.islice(todo, free):
                args = (source.tensors(), tf.constant(count, tf.int64))
                waiting[self._executor.schedule(self._closures.evaluate, args)] = index
            done, _ = concurrent.futures.wait(
                waiting, POLL_SECONDS, concurrent.futures.FIRST_COMPLETED
            )
            for future in done:
                index = waiting.pop(future)
                results[index] = self._result(future, "evaluation", shards[index][0])
                last_change = time.monotonic()
            self._refuse_lost_ps()
            self._refuse_stall(time.monotonic() - last_change, "shard was evaluated")
        ordered = [results[index] for index in range(len(shards))]
        return EvaluationResult.of(ordered, sum(count for _, count in shards))

    def _steps_of_next(self, queue: LeaseQueue, taken: Sequence[Lease], due: float) -> int:
        workers, seconds = len(self._executor.workers), due - time.monotonic()
        left = self._batches(queue.left)
        if not self._members:
            return self.lease_length.within(left, workers, seconds)
        left += sum(self._batches(lease.records) for lease in taken)
        for slot, lease in self._in_flight.values():
            left += max(0, self._batches(lease.records) - self._rows[slot].steps)
        return self.lease_length.in_rounds(left, workers, seconds)

    def _batches(self, records: int) -> int:
        return -(-records // self._batch_size)

    def _schedule(self, leases: Sequence[Lease]) -> None:
        given = [(self._free_slots.pop(), lease) for lease in leases]
        # Also a slot that gets none: a closure that begins only now has nothing to train there.
        for slot in {*(slot for slot, _ in given), *self._ended}:
            number = next(self._lease_numbers)
            clear = functools.partial(self._progress.clear, slot, number)
            self._ps_calls("preparing a lease", clear)
            self._places[slot] = self._progress.place(slot, number)
            self._ended_early[slot] = 0
        self._ended.clear()
        if self._members:
            self._members.work_for([slot for slot, _ in [*given, *self._in_flight.values()]])
        for slot, lease in given:
            self._send(slot, lease)

    def _send(self, slot: int, lease: Lease) -> None:
        place = self._places[slot]
        numbers = tf.constant([lease.first, lease.records, lease.seed, place], tf.int64)
        args = (lease.source.tensors(), numbers)
        self._in_flight[self._executor.schedule(self._closures.train, args)] = slot, lease

    def _finish(self, future: concurrent.futures.Future, queue: LeaseQueue) -> None:
        slot, lease = self._in_flight.pop(future)
        result = self._result(future, f"training epoch {lease.epoch + 1}", lease.source)
        attempts, steps, bad, loss_sum, bad_step, worker, began, seconds = result
        if bad_step >= 0:
            raise RunError(
                f"the loss is not finite at step {int(bad_step) + 1} of {lease.shard}; lower the "
                "learning rate, or look for infinite values in the data; the last checkpoint "
                "holds the parameters from before"
            )
        if steps * self._batch_size < lease.records:
            self.worker_shares.trained(int(worker), 0, float(began), float(seconds), leases=0)
            if steps >= 0:  # the next batch cannot be read
                self._ended_early[slot] += 1
                lease = queue.around_bad_records(lease, int(steps))
            else:  # a closure whose worker was taken for lost has begun it again, and may be lost
                _log.info("%s was taken from worker %d: it is sent again", lease, int(worker))
            self._send(slot, lease)
            return
        lost = int(attempts) - 1 - self._ended_early[slot]
        records = lease.records - int(bad)
        if lost:
            _log.info("%s: begun again %d times, done by worker %d", lease, lost, int(worker))
        if attempts == 1:  # Else it is not known how many of the steps are this closure's.
            self.lease_length.measured(int(steps), float(seconds))
        self.worker_shares.trained(int(worker), records, float(began), float(seconds))
        queue.finish(lease, records, int(bad))
        queue.repeat(lost * min(self._most_unrecorded, records))
        self._meter.finished(float(loss_sum))
        self._free_slots.append(slot)
        self._ended.add(slot)

    def _trained(self, lease: Lease, row: SlotProgress) -> int:
        """Records of a lease that are trained."""
        return min(row.steps * self._batch_size, lease.records) - row.bad

    def _result(self, future: concurrent.futures.Future, doing: str, source: RecordSource) -> Any:
        error = future.exception()
        if error is None:
            return future.result()
        error = self._executor.root_error(error)
        if isinstance(error, tf.errors.CancelledError):  # for a reason that it does not tell
            self._await_loss()
        raise failures.explain(
            error,
            doing,
            source.path,
            lambda: bad_records.told(
                bad_records.find(source, self._closures.schema, source.first, source.end)
            ),
        ) from None

    def _measure(self, queue: LeaseQueue) -> Progress:
        examples, loss = 0, 0.0
        held = dict(self._in_flight.values())
        if held:
            self._rows = self._ps_calls("reading progress", self._progress.read)
            self._tell_lost_workers()
            self._prefetcher.update(held, self._rows, self.lease_length.step_seconds)
            for slot, lease in held.items():
                examples += self._trained(lease, self._rows[slot])
                loss += self._rows[slot].loss_sum
        if self._members and held:  # of several who wait, those for whom the others do
            awaited = self._members.poll(self._rows)
            held = {slot: held[slot] for slot in held if slot in awaited}
        self._diagnosis.note(held, self._rows)
        return self._meter.measure(queue, examples, loss)

    def _tell_lost_workers(self) -> None:
        """Says once per loss which lease a worker held."""
        down = set(self._monitor.down("worker"))
        for worker in down - self._down:
            for slot, lease in self._in_flight.values():
                row = self._rows[slot]
                if worker.startswith(f"{_worker(row)} "):
                    done = self._trained(lease, row)
                    _log.warning("%s held %s: it goes on after %d records", worker, lease, done)
        self._down = down

    def _await_loss(self) -> None:
        """Gives the monitor time to see that a ps was lost.

        Raises:
            LostPsError: If it does.
        """
        deadline = time.monotonic() + _LOSS_SECONDS
        while time.monotonic() < deadline:
            self._refuse_lost_ps()
            time.sleep(POLL_SECONDS)

    def _refuse_lost_ps(self) -> None:
        lost = self._monitor.lost("ps")
        if lost:
            raise failures.lost_ps(", ".join(lost))

    def _refuse_stall(self, seconds: float, what: str) -> None:
        if seconds >= self._stall_seconds:
            raise self._diagnosis.stall(what, seconds)


def slots(executor: Executor, at_barrier: bool = False) -> int:
    """Closures that may be in flight.

    One running and one waiting per worker; none waits where workers wait for each other, since
    they would wait for it, too.
    """
    workers = len(executor.workers)
    return workers if at_barrier else 2 * workers


def _worker(row: SlotProgress) -> str:
    return "waiting" if row.worker < 0 else f"worker {row.worker}"
