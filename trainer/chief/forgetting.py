"""Which rows of tables without a vocabulary a run takes from keys that do not occur any more."""

import bisect
import time
from typing import NamedTuple

from tfps.checkpoint.checkpoint import Checkpoint
from tfps.layers.dynamic_embedding import KeyOptions
from tfps.store.parameter_store import ParameterStore

_HOUR = 3600.0
_MOST_MOMENTS = 1024


class _Moment(NamedTuple):
    """How far the training was; `at` in seconds since 1970, None if not known."""

    steps: int
    trained: int
    at: float | None


class Forgetting:
    """Has the ps look through their rows whenever a checkpoint is due.

    Rows know the number of their last update. Between two moments that are known - the job's
    beginning, the checkpoint that the run resumes from, and each one since - records are taken to
    be spread evenly over updates. Of hours a row is only said to be older when such a moment was
    after its last update and is long enough ago: never too early, and after a restart perhaps
    later.
    """

    def __init__(self, store: ParameterStore, checkpoint: Checkpoint | None):
        self._groups = [group for group in store.keyed_groups if group.layout.options.forgets]
        self._moments = [_Moment(0, 0, None)]
        if checkpoint:
            self._note(_Moment(checkpoint.steps, checkpoint.queue.trained, checkpoint.saved_at))

    @property
    def is_asked_for(self) -> bool:
        """Whether any table may lose rows like this."""
        return bool(self._groups)

    def forget(self, steps: int, trained: int) -> None:
        """Takes rows from keys that have not occurred for long enough, or whose norm is small."""
        self._note(_Moment(steps, trained, time.time()))
        for group in self._groups:
            group.forget(self._least_update(group.layout.options))

    def _note(self, moment: _Moment) -> None:
        if moment.steps > self._moments[-1].steps:
            self._moments.append(moment)
        if len(self._moments) > _MOST_MOMENTS:  # the older they are, the further apart
            half = _MOST_MOMENTS // 2
            self._moments = [*self._moments[:half:2], *self._moments[half:]]

    def _least_update(self, options: KeyOptions) -> int:
        """The number that the last update of a row must have; 0 for any."""
        least, now = 0, self._moments[-1]
        if options.forget_after is not None:
            least = self._steps_at(now.trained - options.forget_after)
        if options.forget_after_hours is not None:
            limit = time.time() - options.forget_after_hours * _HOUR
            known = [each.steps for each in self._moments if each.at and each.at <= limit]
            least = max(least, *known, 0)
        return least

    def _steps_at(self, trained: int) -> int:
        """How many updates there had been when so many records were trained."""
        records = [each.trained for each in self._moments]
        after = bisect.bisect_right(records, trained)
        if trained <= 0 or after == len(records):
            return 0 if trained <= 0 else self._moments[-1].steps
        before, behind = self._moments[after - 1 : after + 1]
        share = (trained - before.trained) / (behind.trained - before.trained)
        return before.steps + int(share * (behind.steps - before.steps))
