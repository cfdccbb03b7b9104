"""Rows of a Kafka topic that wait for their labels, which come in another topic.

A row and a label belong together if they have the same key and were made less than a window apart,
by the time of their messages. A row is sealed when its window is over, with 0 where no label came.

All follows from the messages alone. A collector that restarts reads the last two windows again, and
knows which rows were sealed: those whose windows end at or before `closed`.
"""

import collections
import dataclasses
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfps.data.row_format import BadRow
from tfps.errors import UserError
from trainer.datasets.kafka_messages import KafkaMessages, Message, Partition
from trainer.datasets.message_block import MessageBlock, Row, row_of
from trainer.datasets.row_layout import Block, RowLayout

# Of a partition whose last message was read: one that takes longer from its sender is late.
_DELAY_MILLISECONDS = 10_000
_NOTHING_YET = -(1 << 62)


@dataclasses.dataclass(frozen=True)
class Join:
    """How labels come to rows."""

    key: str  # the column that says which belong together
    window_seconds: float
    labels: tuple[str, ...]  # columns that are 0 where no label came


@dataclasses.dataclass(order=True)
class _Kept:
    """A message that a row may need; the order is that of making."""

    made: int  # milliseconds since 1970
    partition: Partition
    offset: int
    key: Any = dataclasses.field(compare=False)
    row: Row = dataclasses.field(compare=False)
    is_sealed: bool = dataclasses.field(default=False, compare=False)
    is_matched: bool = dataclasses.field(default=False, compare=False)


class JoinedTopics:
    """A source of `trainer.collect`: rows of the first topic with labels of the second."""

    def __init__(self, messages: KafkaMessages, join: Join, layout: RowLayout):
        self._messages, self._join, self._layout = messages, join, layout
        self._rows_topic, _ = messages.topics
        self._window = round(join.window_seconds * 1000)
        self._closed = _NOTHING_YET
        self._latest: dict[Partition, int] = {}  # when the latest message was made
        self._known: dict[Partition, int] = {}  # offsets up to which messages are counted already
        # By key, the first of those of one window, and the labels; and all, the oldest first.
        self._rows: dict[Any, list[_Kept]] = collections.defaultdict(list)
        self._labels: dict[Any, list[_Kept]] = collections.defaultdict(list)
        self._oldest: list[_Kept] = []
        self._waiting: list[_Kept] = []  # rows that are not sealed, the oldest first
        self._counts: collections.Counter[str] = collections.Counter()

    @property
    def place(self) -> Mapping[str, Any]:
        read = dict(self._messages.offsets)
        needed = dict(read)
        for kept in self._oldest:
            needed[kept.partition] = min(needed[kept.partition], kept.offset)
        return {
            **self._same,
            "closed": self._closed,
            "read": _named({each: max(n, self._known.get(each, 0)) for each, n in read.items()}),
            "needed": _named(needed),
            "counts": dict(self._counts),
        }

    @property
    def _same(self) -> Mapping[str, Any]:
        """What must be as it was for a collector to go on."""
        return {
            "topics": list(self._messages.topics),
            "join": self._join.key,
            "window_seconds": self._join.window_seconds,
        }

    def resume(self, place: Mapping[str, Any]) -> None:
        before = {name: place.get(name) for name in self._same}
        if place and before != self._same:
            raise UserError(
                f"--input: the newest dataset in --output was collected from {before}, not from "
                f"{dict(self._same)}; name that, or another --output"
            )
        self._closed = place.get("closed", _NOTHING_YET)
        self._known = _partitions(place.get("read", {}))
        self._counts.update(place.get("counts", {}))
        self._messages.begin(_partitions(place.get("needed", {})))

    def read(self, rows: int) -> Iterable[Block] | None:
        """Rows whose windows are over, and messages that are none; None if there are none yet."""
        wrong: dict[Partition, list[BadRow]] = {}
        for partition, messages in self._messages.read(1 << 30).items():
            for message in messages:
                try:
                    self._take(partition, message)
                except BadRow as bad:
                    if self._is_new(partition, message.offset):
                        wrong.setdefault(partition, []).append(bad)
        by_partition: dict[Partition, list[_Kept]] = {}
        for kept in self._close(rows):
            by_partition.setdefault(kept.partition, []).append(kept)
        blocks = [
            self._block(each, by_partition.get(each, []), wrong.get(each, []))
            for each in sorted({*wrong, *by_partition})
        ]
        self._forget()
        return blocks or None

    def close(self) -> None:
        self._messages.close()

    def _is_new(self, partition: Partition, offset: int) -> bool:
        """Whether a message was not read before the collector began."""
        return offset >= self._known.get(partition, 0)

    def _take(self, partition: Partition, message: Message) -> None:
        if message.milliseconds < 0:
            raise UserError(
                f"{partition} offset {message.offset} does not say when it was made, which --join "
                "needs: set message.timestamp.type of the topic"
            )
        latest = self._latest.get(partition, message.milliseconds)
        self._latest[partition] = max(latest, message.milliseconds)
        row = row_of(partition, message)
        key = row.get(self._join.key)
        if not isinstance(key, int | str):
            raise BadRow(
                f"{partition} offset {message.offset}: column {self._join.key!r} is "
                f"{key!r}, not a number or text"
            )
        kept = _Kept(message.milliseconds, partition, message.offset, key, row)
        is_row = partition.topic == self._rows_topic
        if kept.made + 2 * self._window <= self._closed:
            self._count("late_rows" if is_row else "late_labels", kept)
        elif is_row:
            self._take_row(kept)
        else:
            self._take_label(kept)

    def _take_row(self, kept: _Kept) -> None:
        others = [x for x in self._rows[kept.key] if abs(x.made - kept.made) < self._window]
        if any(each < kept for each in others):
            self._count("duplicates", kept)
            return
        kept.is_sealed = kept.made + self._window <= self._closed
        if kept.is_sealed:
            self._count("late_rows", kept)
        for each in others:  # of a partition that was read sooner
            self._rows[kept.key].remove(each)
            if not each.is_sealed:
                each.is_sealed = True  # or it would be sealed as well
                self._count("duplicates", each)
        self._rows[kept.key].append(kept)
        heapq.heappush(self._oldest, kept)
        if not kept.is_sealed:
            heapq.heappush(self._waiting, kept)

    def _take_label(self, kept: _Kept) -> None:
        sealed = [x for x in self._rows.get(kept.key, ()) if x.is_sealed and self._fits(x, kept)]
        if sealed:
            kept.is_matched = True
            self._count("late_labels", kept)
        self._labels[kept.key].append(kept)
        heapq.heappush(self._oldest, kept)

    def _fits(self, row: _Kept, label: _Kept) -> bool:
        return abs(label.made - row.made) <= self._window

    def _count(self, what: str, kept: _Kept) -> None:
        if self._is_new(kept.partition, kept.offset):
            self._counts[what] += 1

    def _close(self, most: int) -> Iterator[_Kept]:
        """Seals up to `most` rows whose windows are over, and more if they end together."""
        reached = self._reached()
        count = 0
        while self._waiting and (ends := self._waiting[0].made + self._window) <= reached:
            if count >= most and ends > self._closed:
                return
            kept = heapq.heappop(self._waiting)
            self._closed = max(self._closed, ends)
            if not kept.is_sealed:
                kept.is_sealed = True
                count += 1
                yield kept
        self._closed = max(self._closed, reached)

    def _reached(self) -> int:
        """The time up to which all messages were read."""
        ends = self._messages.ends()
        found = []
        for partition in self._messages.partitions:
            latest = self._latest.get(partition, _NOTHING_YET)
            found.append(max(latest, ends.get(partition, _NOTHING_YET) - _DELAY_MILLISECONDS))
        return min(found, default=_NOTHING_YET)

    def _forget(self) -> None:
        """Forgets what no row needs any more."""
        while self._oldest and self._oldest[0].made + 2 * self._window <= self._closed:
            kept = heapq.heappop(self._oldest)
            of_rows = kept.partition.topic == self._rows_topic
            held = self._rows if of_rows else self._labels
            if of_rows:
                for label in self._labels.get(kept.key, ()):
                    label.is_matched |= self._fits(kept, label)
            elif not kept.is_matched and not self._has_row(kept):
                self._counts["labels_without_row"] += 1
            if kept in held[kept.key]:
                held[kept.key].remove(kept)
            if not held[kept.key]:
                del held[kept.key]

    def _has_row(self, label: _Kept) -> bool:
        return any(self._fits(each, label) for each in self._rows.get(label.key, ()))

    def _labelled(self, kept: _Kept) -> Row:
        """A row with its first label."""
        labels = sorted(x for x in self._labels.get(kept.key, ()) if self._fits(kept, x))
        said = labels[0].row if labels else {}
        truth = {name: said[name] for name in self._join.labels if said.get(name) is not None}
        return {**dict.fromkeys(self._join.labels, 0), **said, **kept.row, **truth}

    def _block(
        self, partition: Partition, rows: Sequence[_Kept], wrong: Sequence[BadRow]
    ) -> MessageBlock:
        labelled = [(kept.offset, self._labelled(kept)) for kept in rows]
        for kept in rows:
            kept.row = {}  # it stays for its key alone
        return MessageBlock.of(partition, labelled, wrong, self._layout, size=0)


def _named(offsets: Mapping[Partition, int]) -> dict[str, int]:
    return {f"{each.topic}/{each.number}": offset for each, offset in offsets.items()}


def _partitions(named: Mapping[str, int]) -> dict[Partition, int]:
    found = {}
    for name, offset in named.items():
        topic, _, number = name.rpartition("/")
        found[Partition(topic, int(number))] = int(offset)
    return found
