"""How many steps a worker makes between exchanges, chosen by what an exchange costs."""

import logging
import math
from collections.abc import Callable

from tfps.worker.loop import ExchangeTimes

MOST_STEPS = 32
_TRIED_STEPS = 8  # while nothing is known
_SHARE = 0.1  # of a worker's time that exchanges may take
_EXCHANGES = 24  # that are measured before it is chosen
_log = logging.getLogger(__name__)


class SyncEvery:
    """How many steps lie between a pull and its push in mode `local_sgd`.

    Where it is to be chosen, the first leases are timed: it becomes the least number of steps with
    which a worker waits for exchanges at most a tenth of its time, and no more than 32. What is
    chosen holds for the job's whole life.
    """

    def __init__(self, steps: int, chosen: Callable[[int], None] = lambda steps: None):
        """Takes what is known.

        Args:
            steps: How many; 0 if they are to be chosen.
        """
        self.steps = steps or _TRIED_STEPS
        self.is_chosen = steps > 0
        self._chosen = chosen
        self._warm: set[int] = set()
        self._measured: list[ExchangeTimes] = []

    @property
    def most_unrecorded(self) -> int:
        """Batches that a lost worker may have pushed without having recorded them, at most."""
        return max(self.steps, _TRIED_STEPS) if self._measured else self.steps

    def measured(self, worker: int, times: ExchangeTimes) -> bool:
        """Takes note of what a lease took; returns whether that was enough to choose.

        Args:
            worker: Who has trained it. Its first lease counts for nothing: all is slow there.
        """
        if self.is_chosen or not times.exchanges:
            return False
        if worker not in self._warm:
            self._warm.add(worker)
            return False
        self._measured.append(times)
        if sum(each.exchanges for each in self._measured) < _EXCHANGES:
            return False
        self._choose()
        return True

    def _choose(self) -> None:
        exchanges = sum(each.exchanges for each in self._measured)
        exchange = sum(each.exchange_seconds for each in self._measured) / exchanges
        step = sum(each.step_seconds for each in self._measured) / exchanges / self.steps
        least = math.ceil(exchange * (1 - _SHARE) / _SHARE / step) if step else MOST_STEPS
        self.steps, self.is_chosen = min(max(1, least), MOST_STEPS), True
        _log.info(
            "--mode.sync_every=0: %d, since an exchange takes %.2f ms and a step %.2f ms",
            self.steps,
            1000 * exchange,
            1000 * step,
        )
        self._chosen(self.steps)
