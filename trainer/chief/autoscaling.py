"""How many workers a run is to have, by what each of them brings."""

import itertools
import logging
import statistics
from collections.abc import Iterable, Mapping

from tfps.coordinator.coordinator import Throughput
from tfps.job_dir.size import Size
from tfps.monitoring.events import RunBegan, RunEvent, Sampled
from trainer.chief.wait_limits import Autoscale

# A worker is worth it that brings so much of what each of the fewest does. Of several together the
# last may bring less: they are good where they bring all but some, or are few for their number.
_WORTH, _FULL, _FINE = 0.4, 0.85, 8
# So far another speed of the same number has to be that what was known of all numbers is forgotten.
_OTHER_SPEED = 0.25
_WARM_SECONDS = 10.0  # of a run, in which it is slower
_LEAST_SAMPLES = 3
_log = logging.getLogger(__name__)


def next_workers(speeds: Mapping[int, float], least: int, most: int) -> int:
    """The number to have next, by the examples per second of those that were tried.

    A good number is doubled, and what lies between a good one and the next that was tried is
    halved, so that few are tried. The answer is one of `speeds` where nothing is left to try.
    """
    tried = sorted(number for number in speeds if least <= number <= most)
    if not tried:
        return min(most, max(least, min(speeds)))
    each = speeds[tried[0]] / tried[0]  # what each of the fewest brings
    gains = {
        number: (speeds[number] - speeds[lower]) / (number - lower) / each
        for lower, number in itertools.pairwise(tried)
    }
    good = tried[0]
    for lower, number in itertools.pairwise(tried):
        if gains[number] >= _FULL or (
            gains[number] >= _WORTH and number - lower <= max(1, number // _FINE)
        ):
            good = number
    above = next((number for number in tried if number > good), None)
    has_end = good == most if above is None else gains[above] < _WORTH
    if good == tried[0] > least and has_end:  # whether all of these bring something is not known
        return max(least, good // 2)
    if above is None:
        return min(most, 2 * good)
    return (good + above) // 2


class Autoscaling:
    """Looks how fast a run is, and says when it is to have another number of workers."""

    def __init__(self, limits: Autoscale, workers: int, past: Iterable[RunEvent]):
        """`past` is the history of the job, `workers` how many it has now."""
        self._limits = limits
        self._workers = workers
        self._speeds = _speeds(past, limits.seconds)
        self._from: tuple[float, int] | None = None  # seconds and examples, when measuring began
        self._chosen = workers

    def wanted(self, throughput: Throughput, is_whole: bool = True) -> int:
        """How many workers the run is to have; another number only where all is measured.

        `is_whole` says whether all tasks answer: what was measured since one did not counts not.
        """
        seconds, examples = throughput.seconds, throughput.examples
        if self._chosen != self._workers:  # until the run has ended for that
            return self._chosen
        if self._from is None or not is_whole:
            if seconds >= _WARM_SECONDS:
                self._from = seconds, examples
            return self._workers
        since, before = self._from
        if seconds - since < self._limits.seconds:
            return self._workers
        self._from = seconds, examples
        speed = (examples - before) / (seconds - since)
        known = self._speeds.get(self._workers)
        if known and abs(speed / known - 1) > _OTHER_SPEED:
            _log.info(
                "%.0f examples/s with %s, not %.0f as before: looking again for the best number",
                *(speed, _named(self._workers), known),
            )
            self._speeds.clear()
        # The first measurement stays: numbers are not weighed again because of noise.
        self._speeds.setdefault(self._workers, speed)
        self._chosen = next_workers(self._speeds, self._limits.least, self._limits.most)
        if self._chosen != self._workers:
            _log.info(
                "%.0f examples/s with %s: trying %s",
                *(speed, _named(self._workers), _named(self._chosen)),
            )
        return self._chosen


def _named(workers: int) -> str:
    return str(Size(workers, 0))


def _speeds(past: Iterable[RunEvent], seconds: float) -> dict[int, float]:
    """Examples per second by number of workers, of the last run that had it for long enough."""
    found: dict[int, float] = {}
    workers, samples = 0, list[Sampled]()
    for event in [*past, None]:
        if event is None or isinstance(event, RunBegan):
            long_enough = samples and samples[-1].at - samples[0].at >= seconds
            if long_enough and len(samples) > _LEAST_SAMPLES:
                found[workers] = statistics.median(x.examples_per_second for x in samples[1:])
            workers, samples = event.workers if event else 0, []
        elif isinstance(event, Sampled):
            samples.append(event)
    return found
