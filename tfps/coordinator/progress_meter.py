"""Measures how far and how fast a training comes."""

from tfps.coordinator.progress import Progress
from tfps.coordinator.throughput import Throughput
from tfps.leases.queue import LeaseQueue


class ProgressMeter:
    """Keeps what was reported last, so that each report tells what is new.

    Attributes:
        throughput: Speed of the training at steady state.
    """

    def __init__(self) -> None:
        self.throughput = Throughput()
        self._loss_of_finished = 0.0
        self._reported = (0, 0.0)

    def begin(self, queue: LeaseQueue) -> None:
        """Training begins, or goes on after a pause."""
        self.throughput.begin(queue.trained)
        self._reported = queue.trained, self._loss_of_finished

    def pause(self, queue: LeaseQueue) -> None:
        """Leaves out the time until training goes on."""
        self.throughput.pause(queue.trained)

    def finished(self, loss_sum: float) -> None:
        """Notes the loss of a lease that is trained, the sum over its records."""
        self._loss_of_finished += loss_sum

    def measure(self, queue: LeaseQueue, examples: int, loss_sum: float) -> Progress:
        """How far the training has come.

        Args:
            queue: Knows the epoch and what finished leases have trained.
            examples: Records trained of unfinished leases.
            loss_sum: Sum over these of the loss of their batch.
        """
        examples += queue.trained
        loss = self._loss_of_finished + loss_sum
        self.throughput.update(examples)
        new_examples, new_loss = examples - self._reported[0], loss - self._reported[1]
        self._reported = examples, loss
        mean = new_loss / new_examples if new_examples > 0 else None
        return Progress(queue.epoch, examples, self.throughput.examples_per_second, mean)
