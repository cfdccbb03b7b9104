"""The records of the training data that a run passes over, since they are bad."""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfps.cluster import failures
from tfps.data import bad_records
from tfps.data.bad_records import BadRecord
from tfps.data.feature import Feature
from tfps.data.followed_data import RunData
from tfps.data.record_source import RecordSource
from tfps.errors import RunError, UserError
from tfps.experiment.experiment import Experiment
from tfps.job_dir.report import ReportedBadRecord

_log = logging.getLogger(__name__)


class BadRecords:
    """Finds bad records where a worker has come upon some, and counts them against a limit."""

    def __init__(
        self,
        data: RunData,
        features: Sequence[Feature],
        limit: int,
        known: Sequence[Sequence[Any]] = (),
    ):
        self._data = data
        self._features = features
        self._limit = limit
        self._known: dict[int, dict[int, BadRecord]] = {}  # by shard and number
        for shard, *fields in known:
            self._add(shard, BadRecord(*fields))
        if limit and self.count > limit:
            raise UserError(
                f"--data.max_bad_records={limit}, but the last checkpoint knows {self.count:,} bad "
                "records already: allow as many, or start again with another --job_dir"
            )

    @classmethod
    def of(
        cls, experiment: Experiment, data: RunData, known: Sequence[Sequence[Any]] = ()
    ) -> "BadRecords":
        return cls(data, experiment.task.schema().all, experiment.data.max_bad_records, known)

    @property
    def count(self) -> int:
        return sum(bad.records for _, bad in self._all())

    def bad_ranges(self, shard: int, first: int, end: int) -> tuple[tuple[int, int, int], ...]:
        """The bad ranges of a `RecordSource` among some records of a shard, `end` exclusive."""
        if not self._limit:
            return ()
        return tuple(
            (bad.number, bad.records, bad.next_offset)
            for bad in self._sorted(shard)
            if bad.end > first and bad.number < end
        )

    def look(self, shard: int, source: RecordSource, first: int, end: int, doing: str) -> None:
        """Finds bad records where a worker could not read; `doing` as "training epoch 1"."""
        try:
            whole = self._whole(shard)._replace(bad_ranges=source.bad_ranges)
            found = bad_records.find(whole, self._features, first, end)
        except tf.errors.OpError as error:
            raise failures.explain(error, doing, source.path) from None
        if not found:
            raise RunError(
                f"{doing}: shard {source.path}: a worker cannot read records {first:,} to "
                f"{end - 1:,}, but the chief can; the worker's log tells why. Does it read another "
                "copy of the file?"
            )
        before = self.count
        for bad in found:
            self._add(shard, bad)
        if self.count > self._limit:
            raise UserError(
                f"{doing}: shard {source.path}: {bad_records.describe(found)}; {before:,} were "
                f"passed over before, and --data.max_bad_records={self._limit} allows no more: "
                "correct the data or make the shard again"
            )
        if self.count > before:
            _log.warning(
                "shard %s: %s; passed over, as %d of at most %d bad records",
                source.path,
                bad_records.describe(found),
                self.count,
                self._limit,
            )

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Forgets those of shards that nobody reads again."""
        self._known = {shard: bad for shard, bad in self._known.items() if not is_gone(shard)}

    def state(self) -> tuple[tuple[Any, ...], ...]:
        """All of them by shard and number, as JSON-ready data to start from."""
        return tuple((shard, *dataclasses.astuple(bad)) for shard, bad in self._all())

    def report(self) -> list[ReportedBadRecord]:
        """All of them by shard and number, for people."""
        return [
            ReportedBadRecord(
                shard=self._name(shard),
                record=bad.number,
                byte=bad.offset,
                records=bad.records,
                reason=bad.reason,
            )
            for shard, bad in self._all()
        ]

    def _whole(self, shard: int) -> RecordSource:
        """A shard with all that is known of where its records begin."""
        data, place = self._data.find(shard)
        held, entries = data.shards[place], data.index.offsets[place]
        source = RecordSource(data.path_of(held), held.compression, end=held.records)
        if not len(entries):
            return source
        return source._replace(offsets=tuple(entries.tolist()), stride=data.index.stride)

    def _name(self, shard: int) -> str:
        data, place = self._data.find(shard)
        held = data.shards[place]
        return held.file if len(self._data.datasets) == 1 else data.path_of(held)

    def _add(self, shard: int, bad: BadRecord) -> None:
        self._known.setdefault(shard, {})[bad.number] = bad

    def _all(self) -> Iterator[tuple[int, BadRecord]]:
        for shard in sorted(self._known):
            for bad in self._sorted(shard):
                yield shard, bad

    def _sorted(self, shard: int) -> list[BadRecord]:
        return [bad for _, bad in sorted(self._known.get(shard, {}).items())]


def explain_failure(
    error: BaseException, doing: str, source: RecordSource, features: Sequence[Feature]
) -> BaseException:
    """The error of a closure that could not read a shard; `doing` as "training epoch 1"."""
    return failures.explain(
        error,
        doing,
        source.path,
        lambda: bad_records.describe(bad_records.find(source, features, source.first, source.end)),
    )
