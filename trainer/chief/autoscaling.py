"""How many workers and ps a run is to have, by what each of them brings."""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tfps.coordinator.coordinator import Throughput
from tfps.job_dir.size import Size
from tfps.monitoring.events import RunBegan, RunEvent, SpeedMeasured
from trainer.chief import size_search
from trainer.chief.wait_limits import Autoscale

# So far another speed of the same size has to be that what was known of all sizes is forgotten.
_OTHER_SPEED = 0.25
_WARM_SECONDS = 10.0  # of a run, in which it is slower
_log = logging.getLogger(__name__)


class Kind(NamedTuple):
    """What a speed depends on besides the numbers of workers and ps."""

    mode: str
    batch_size: str

    @classmethod
    def of(cls, began: RunBegan) -> "Kind":
        return cls(began.mode, began.settings.get("train.batch_size", ""))


class Tried(NamedTuple):
    """What a job's earlier runs know of sizes."""

    speeds: dict[Size, float]  # examples per second
    refused: set[Size]  # with which the run could not begin

    @classmethod
    def of(cls, past: Iterable[RunEvent], kind: Kind, now: Size) -> "Tried":
        """What a history tells of runs of a kind, for a run that now has a size."""
        found, last, is_same = cls({}, set()), None, True
        for event in past:
            if isinstance(event, RunBegan):
                is_same = Kind.of(event) == kind
                if not is_same:
                    found, last = cls({}, set()), None
            elif isinstance(event, SpeedMeasured) and is_same:
                found.note_begun(last, _size_of(event))
                found.note(event)
                last = event
        found.note_begun(last, now)
        return found

    def note(self, event: SpeedMeasured) -> None:
        if event.is_other:
            self.speeds.clear()
            self.refused.clear()
        self.speeds[_size_of(event)] = event.examples_per_second

    def note_begun(self, last: SpeedMeasured | None, now: Size) -> None:
        """Takes note of the size that a run has begun with after a choice."""
        if last and now == _size_of(last) != _choice_of(last):
            self.refused.add(_choice_of(last))

    def next(self, now: Size, limits: Autoscale, others: int) -> Size:
        """The size to have next; `others` train besides the workers."""
        least, most, _, most_ps = limits
        for refused in self.refused:
            if refused.ps > now.ps:
                most_ps = min(most_ps, refused.ps - 1)
            elif refused.ps == now.ps and refused.workers > now.workers:
                most = min(most, refused.workers - 1)
            elif refused.ps == now.ps:
                least = max(least, refused.workers + 1)
        too_few = max((size.ps for size in self.refused if size.ps < now.ps), default=-1)
        speeds = {
            Size(workers + others, ps): speed
            for (workers, ps), speed in self.speeds.items()
            if ps > too_few
        }
        own = limits._replace(least=least + others, most=most + others, most_ps=most_ps)
        found = size_search.next_size(speeds, Size(now.workers + others, now.ps), own)
        return Size(found.workers - others, found.ps)


def _size_of(event: SpeedMeasured) -> Size:
    return Size(event.workers, event.ps)


def _choice_of(event: SpeedMeasured) -> Size:
    return Size(event.chosen, event.chosen_ps)


class Autoscaling:
    """Looks how fast a run is, and says when it is to have another size."""

    def __init__(
        self,
        limits: Autoscale,
        size: Size,
        tried: Tried,
        tell: Callable[[SpeedMeasured], None],
        others: int = 0,
    ):
        """`others` train besides the workers: the chief, or a worker next to it."""
        self._limits = limits
        self._size = size
        self._tried = tried
        self._tell = tell
        self._others = others
        self._throughput = Throughput()
        self._from: tuple[float, int] | None = None  # seconds and examples, when measuring began
        self._chosen = size

    def begin(self, throughput: Throughput) -> None:
        """The run has connected, and counts from 0."""
        self._throughput, self._from = throughput, None

    def wanted(self, is_whole: bool = True) -> Size:
        """The size that the run is to have; another one only where its own is measured.

        `is_whole` says whether all tasks take part. While one does not, nothing is measured.
        """
        seconds, examples = self._throughput.seconds, self._throughput.examples
        if self._chosen != self._size:  # until the run has ended for that
            return self._chosen
        if self._from is None or not is_whole:
            if seconds >= _WARM_SECONDS:
                self._from = seconds, examples
            return self._size
        since, before = self._from
        if seconds - since < self._limits.seconds or examples <= before:
            return self._size
        self._from = seconds, examples
        self._measured((examples - before) / (seconds - since))
        return self._chosen

    def _measured(self, speed: float) -> None:
        """Takes note of how fast the run is, and chooses."""
        known = self._tried.speeds.get(self._size)
        is_other = known is not None and abs(speed / known - 1) > _OTHER_SPEED
        if is_other:
            _log.info(
                "%.0f examples/s with %s, not %.0f as before: looking again for the best number",
                *(speed, self._named(self._size), known),
            )
        # The first measurement stays: sizes are not weighed again because of noise.
        kept = speed if known is None or is_other else known
        event = SpeedMeasured(
            at=time.time(),
            workers=self._size.workers,
            ps=self._size.ps,
            examples_per_second=kept,
            chosen=self._size.workers,
            chosen_ps=self._size.ps,
            is_other=is_other,
        )
        self._tried.note(event)
        self._chosen = self._tried.next(self._size, self._limits, self._others)
        if self._chosen != self._size:
            _log.info(
                "%.0f examples/s with %s: trying %s",
                *(speed, self._named(self._size), self._named(self._chosen)),
            )
        if known is None or is_other or self._chosen != self._size:
            workers, ps = self._chosen
            self._tell(dataclasses.replace(event, chosen=workers, chosen_ps=ps))

    def _named(self, size: Size) -> str:
        """Without ps where these stay."""
        return str(size if self._limits.most_ps else Size(size.workers, 0))
