"""Rows that are messages of a Kafka topic, each a JSON object, read once and in order."""

import dataclasses
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from cloud import optional_imports
from tfps.data.parquet import ParquetBlock
from tfps.data.row_format import BadRow, Columns, RowFormat, Values
from tfps.errors import RunError, UserError
from tfps.storage import files
from trainer.datasets.row_layout import Block, RowLayout

_URL = re.compile(r"kafka://([^/\s]+)/([\w.-]+)")
_TOPIC, _OFFSETS = "topic", "offsets"
_AT_ONCE = 4096  # messages
_WAIT_SECONDS = 0.5
_METADATA_SECONDS = 30.0  # that a broker has to answer; also between looks for new partitions
_log = logging.getLogger(__name__)


def is_topic(named: str) -> bool:
    return named.startswith("kafka://")


class _Message(NamedTuple):
    offset: int
    value: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class MessageBlock(ParquetBlock):
    """Some messages of a partition; `before` is not used."""

    offsets: Sequence[int] = ()
    wrong: Sequence[BadRow] = ()  # messages that are no rows

    def columns(self, row_format: RowFormat) -> tuple[int, dict[str, Columns]]:
        if self.wrong:
            raise ValueError("some messages are no rows")
        return super().columns(row_format)

    def rows(
        self, row_format: RowFormat, on_bad_row: Callable[[BadRow], None]
    ) -> Iterator[tuple[int, Values]]:
        for each in self.wrong:
            on_bad_row(each)
        yield from super().rows(row_format, on_bad_row)

    def where(self, number: int) -> str:
        return f"{self.path} offset {self.offsets[number - 1]}"


class KafkaTopic:
    """A source of `trainer.collect`. It commits nothing to Kafka: a place is all that it needs."""

    def __init__(self, brokers: str, topic: str, settings: Mapping[str, str], layout: RowLayout):
        self._kafka = optional_imports.load("confluent_kafka", "kafka")
        self._brokers, self._topic = brokers, topic
        self._columns = [name for each in layout.all for name in layout.columns_of(each)]
        self._offsets: dict[int, int] = {}  # of the next message, by partition
        self._looked = 0.0
        try:
            self._consumer = self._kafka.Consumer(
                {
                    **settings,
                    "bootstrap.servers": brokers,
                    "group.id": "tfps",  # needed, and not used: partitions are assigned here
                    "enable.auto.commit": False,
                    # Messages that are gone are told of; any other value passes over them.
                    "auto.offset.reset": "error",
                    "error_cb": lambda error: _log.warning("kafka: %s", error.str()),
                }
            )
        except self._kafka.KafkaException as error:
            raise UserError(f"--kafka_config: {_said(error)}") from None

    @classmethod
    def of(cls, url: str, settings_file: str, layout: RowLayout) -> Self:
        """The topic of `--input`, with the settings of `--kafka_config`."""
        if not (match := _URL.fullmatch(url)):
            raise UserError(f"--input={url}: write kafka://HOST:PORT/TOPIC")
        return cls(match[1], match[2], _settings(settings_file) if settings_file else {}, layout)

    @property
    def place(self) -> Mapping[str, Any]:
        offsets = {str(partition): offset for partition, offset in self._offsets.items()}
        return {_TOPIC: self._topic, _OFFSETS: offsets}

    def resume(self, place: Mapping[str, Any]) -> None:
        if place and place.get(_TOPIC) != self._topic:
            raise UserError(
                f"--input: the newest dataset in --output was collected from {dict(place)}, not "
                f"from topic {self._topic}; name that input, or another --output"
            )
        known = place.get(_OFFSETS, {})
        self._offsets = {int(partition): int(offset) for partition, offset in known.items()}
        partitions = self._partitions()
        if lost := set(self._offsets) - set(partitions):
            raise UserError(f"topic {self._topic} has no partition {min(lost)} any more")
        self._consumer.assign(self._assignment(partitions))

    def read(self, rows: int) -> Iterable[Block] | None:
        """The messages that are there; None if none came in half a second."""
        if time.monotonic() - self._looked > _METADATA_SECONDS:
            known = {each.partition for each in self._consumer.assignment()}
            if new := [each for each in self._partitions() if each not in known]:
                self._consumer.incremental_assign(self._assignment(new))
        found = self._consumer.consume(min(rows, _AT_ONCE), _WAIT_SECONDS)
        by_partition: dict[int, list[Any]] = {}
        for message in found:
            if error := message.error():
                self._refuse(error, message)
            by_partition.setdefault(message.partition(), []).append(message)
        if not by_partition:
            return None
        for partition, messages in by_partition.items():
            self._offsets[partition] = messages[-1].offset() + 1
        return [self._block(*each) for each in by_partition.items()]

    def close(self) -> None:
        self._consumer.close()

    def _partitions(self) -> list[int]:
        self._looked = time.monotonic()
        try:
            topics = self._consumer.list_topics(self._topic, timeout=_METADATA_SECONDS).topics
        except self._kafka.KafkaException as error:
            raise RunError(f"kafka://{self._brokers} does not answer: {_said(error)}") from None
        found = topics[self._topic]
        if found.error or not found.partitions:
            raise UserError(f"kafka://{self._brokers} has no topic {self._topic}: {found.error}")
        return sorted(found.partitions)

    def _assignment(self, partitions: Sequence[int]) -> list[Any]:
        first = self._kafka.OFFSET_BEGINNING
        return [
            self._kafka.TopicPartition(self._topic, each, self._offsets.get(each, first))
            for each in partitions
        ]

    def _refuse(self, error: Any, message: Any) -> None:
        if error.name() == "_AUTO_OFFSET_RESET":
            wanted = self._offsets.get(message.partition())
            raise RunError(
                f"topic {self._topic}, partition {message.partition()}, has no message {wanted} "
                "any more: it was deleted before it was collected. To go on with the oldest that "
                "are there, begin another --output"
            )
        raise RunError(f"topic {self._topic}: {error.str()}")

    def _block(self, partition: int, messages: Sequence[Any]) -> MessageBlock:
        path = f"topic {self._topic} partition {partition}"
        rows, wrong = [], []
        for message in messages:
            try:
                rows.append(_Message(message.offset(), _row(message.value())))
            except ValueError as error:
                wrong.append(BadRow(f"{path} offset {message.offset()}: {error}"))
        names = dict.fromkeys([*self._columns, *(name for row in rows for name in row.value)])
        arrow = optional_imports.load("pyarrow", "kafka")
        columns = {name: _column(arrow, [row.value.get(name) for row in rows]) for name in names}
        size = sum(len(message.value() or b"") for message in messages)
        batch = arrow.RecordBatch.from_pydict(columns)
        return MessageBlock(path, 0, batch, size, [row.offset for row in rows], wrong)


def _row(content: bytes | None) -> dict[str, Any]:
    """The columns of a message."""
    found = json.loads(content or b"")
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")
    for name, value in found.items():
        if isinstance(value, dict):
            raise ValueError(f"column {name!r} is an object, not a cell or a list of them")
    return found


def _column(arrow: Any, values: Sequence[Any]) -> Any:
    """The cells of a column; as text where messages do not agree on their type."""
    try:
        return arrow.array(values)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError):
        return arrow.array([None if value is None else _text(value) for value in values])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _settings(path: str) -> dict[str, str]:
    """The settings in a file; their values may be secrets."""
    try:
        lines = files.read(path).decode().splitlines()
    except FileNotFoundError:
        raise UserError(f"--kafka_config={path}: no such file") from None
    found = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        name, is_set, value = text.partition("=")
        if text.startswith("#") or not text:
            continue
        if not is_set:
            raise UserError(f"--kafka_config={path}, line {number}: write NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _said(error: Exception) -> str:
    return str(error.args[0].str()) if error.args else str(error)
