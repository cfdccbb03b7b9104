"""How many workers a run is to have, by what each of them brings."""

import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tfps.coordinator.coordinator import Throughput
from tfps.job_dir.size import Size
from tfps.monitoring.events import RunBegan, RunEvent, SpeedMeasured
from trainer.chief.wait_limits import Autoscale

# A worker is worth it that brings so much of what each of the fewest does. Of several together the
# last may bring less: they are good where they bring all but some, or are few for their number.
_WORTH, _FULL, _FINE = 0.4, 0.85, 8
# So far another speed of the same number has to be that what was known of all numbers is forgotten.
_OTHER_SPEED = 0.25
_WARM_SECONDS = 10.0  # of a run, in which it is slower
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


class Kind(NamedTuple):
    """What a speed depends on besides the number of workers."""

    ps: int
    mode: str
    batch_size: str

    @classmethod
    def of(cls, began: RunBegan) -> "Kind":
        return cls(began.ps, began.mode, began.settings.get("train.batch_size", ""))


class Tried(NamedTuple):
    """What a job's earlier runs know of numbers of workers."""

    speeds: dict[int, float]  # examples per second by number
    refused: set[int]  # with which the run could not begin

    @classmethod
    def of(cls, past: Iterable[RunEvent], kind: Kind, workers: int) -> "Tried":
        """What a history tells of runs of a kind, for a run that now has so many workers."""
        found, last, is_same = cls({}, set()), None, True
        for event in past:
            if isinstance(event, RunBegan):
                is_same = Kind.of(event) == kind
                if not is_same:
                    found, last = cls({}, set()), None
            elif isinstance(event, SpeedMeasured) and is_same:
                found.note_begun(last, event.workers)
                found.note(event)
                last = event
        found.note_begun(last, workers)
        return found

    def note(self, event: SpeedMeasured) -> None:
        if event.is_other:
            self.speeds.clear()
            self.refused.clear()
        self.speeds[event.workers] = event.examples_per_second

    def note_begun(self, last: SpeedMeasured | None, workers: int) -> None:
        """Takes note of the number that a run has begun with after a choice."""
        if last and last.chosen not in (last.workers, workers) and workers == last.workers:
            self.refused.add(last.chosen)


class Autoscaling:
    """Looks how fast a run is, and says when it is to have another number of workers."""

    def __init__(
        self,
        limits: Autoscale,
        workers: int,
        tried: Tried,
        tell: Callable[[SpeedMeasured], None],
        others: int = 0,
    ):
        """`others` train besides the workers: the chief, or a worker next to it."""
        self._limits = limits
        self._workers = workers
        self._tried = tried
        self._tell = tell
        self._others = others
        self._throughput = Throughput()
        self._from: tuple[float, int] | None = None  # seconds and examples, when measuring began
        self._chosen = workers

    def begin(self, throughput: Throughput) -> None:
        """The run has connected, and counts from 0."""
        self._throughput, self._from = throughput, None

    def wanted(self, is_whole: bool = True) -> int:
        """How many workers the run is to have; another number only where all is measured.

        `is_whole` says whether all tasks take part. While one does not, nothing is measured.
        """
        seconds, examples = self._throughput.seconds, self._throughput.examples
        if self._chosen != self._workers:  # until the run has ended for that
            return self._chosen
        if self._from is None or not is_whole:
            if seconds >= _WARM_SECONDS:
                self._from = seconds, examples
            return self._workers
        since, before = self._from
        if seconds - since < self._limits.seconds or examples <= before:
            return self._workers
        self._from = seconds, examples
        self._measured((examples - before) / (seconds - since))
        return self._chosen

    def _measured(self, speed: float) -> None:
        """Takes note of how fast the run is, and chooses."""
        known = self._tried.speeds.get(self._workers)
        is_other = known is not None and abs(speed / known - 1) > _OTHER_SPEED
        if is_other:
            _log.info(
                "%.0f examples/s with %s, not %.0f as before: looking again for the best number",
                *(speed, _named(self._workers), known),
            )
        # The first measurement stays: numbers are not weighed again because of noise.
        kept = speed if known is None or is_other else known
        event = SpeedMeasured(
            at=time.time(),
            workers=self._workers,
            examples_per_second=kept,
            chosen=self._workers,
            is_other=is_other,
        )
        self._tried.note(event)
        self._chosen = self._next()
        if self._chosen != self._workers:
            _log.info(
                "%.0f examples/s with %s: trying %s",
                *(speed, _named(self._workers), _named(self._chosen)),
            )
        if known is None or is_other or self._chosen != self._workers:
            self._tell(dataclasses.replace(event, chosen=self._chosen))

    def _next(self) -> int:
        least, most = self._limits.least, self._limits.most
        for number in self._tried.refused:
            if number > self._workers:
                most = min(most, number - 1)
            else:
                least = max(least, number + 1)
        others = self._others
        speeds = {number + others: speed for number, speed in self._tried.speeds.items()}
        return next_workers(speeds, least + others, most + others) - others


def _named(workers: int) -> str:
    return str(Size(workers, 0))
