"""The messages of Kafka topics, each partition's in order, from given offsets on."""

import functools
import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from cloud import optional_imports
from tfps.errors import RunError, UserError
from tfps.storage import files

_URL = re.compile(r"kafka://([^/\s]+)/([\w.,-]+)")
_AT_ONCE = 4096  # messages
_WAIT_SECONDS = 0.5
_METADATA_SECONDS = 30.0  # that a broker has to answer; also between looks for new partitions
_END_MILLISECONDS = 1000  # between looks whether a partition has more messages
_SILENT_MILLISECONDS, _TOLD_MILLISECONDS = 10_000, 600_000  # until it is said, and said again
_log = logging.getLogger(__name__)


class Partition(NamedTuple):
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"topic {self.topic} partition {self.number}"


class _End(NamedTuple):
    """The end of a partition, up to which all was read."""

    offset: int
    at: int = 0  # when it was the end, as somebody asked for it has said; ms since 1970


class Message(NamedTuple):
    """A message; `milliseconds` since 1970 is when its sender made it, negative if not known."""

    offset: int
    milliseconds: int
    content: bytes


def is_topic(named: str) -> bool:
    return named.startswith("kafka://")


class KafkaMessages:
    """A consumer. It commits nothing to Kafka: offsets are all that it needs."""

    def __init__(self, brokers: str, topics: Sequence[str], settings: Mapping[str, str]):
        self.topics = tuple(topics)
        self.offsets: dict[Partition, int] = {}  # of the next message
        self._ends: dict[Partition, _End] = {}
        self._silent_since: dict[Partition, int] = {}  # ms since 1970
        self._kafka = optional_imports.load("confluent_kafka", "kafka")
        self._brokers = brokers
        self._looked = 0.0
        self._settings = {
            **settings,
            "bootstrap.servers": brokers,
            "group.id": "tfps",  # needed, and not used: partitions are assigned here
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # Messages that are gone are told of; any other value passes over them.
            "auto.offset.reset": "error",
            "error_cb": lambda error: _log.warning("kafka: %s", error.str()),
        }
        try:
            self._consumer = self._kafka.Consumer(self._settings)
        except self._kafka.KafkaException as error:
            raise UserError(f"--kafka_config: {_said(error)}") from None

    @classmethod
    def of(cls, url: str, settings_file: str, topics: int = 1) -> Self:
        """So many topics of `--input`, with the settings of `--kafka_config`."""
        match = _URL.fullmatch(url)
        names = match[2].split(",") if match else []
        if not match or len(names) != topics or not all(names):
            wanted = ",".join(("TOPIC", "LABELS")[:topics])
            raise UserError(f"--input={url}: write kafka://HOST:PORT/{wanted}")
        return cls(match[1], names, _settings(settings_file) if settings_file else {})

    @functools.cached_property
    def _asker(self) -> Any:
        """A consumer that reads nothing: the other's answers come behind messages it waits for."""
        return self._kafka.Consumer(self._settings)

    @property
    def partitions(self) -> set[Partition]:
        """Those that are read."""
        return {Partition(each.topic, each.partition) for each in self._consumer.assignment()}

    def begin(self, offsets: Mapping[Partition, int]) -> None:
        """Reads on from offsets; a partition without one from its beginning."""
        self.offsets = dict(offsets)
        partitions = self._existing()
        if lost := set(offsets) - set(partitions):
            gone = min(lost)
            raise UserError(f"topic {gone.topic} has no partition {gone.number} any more")
        self._consumer.assign(self._assignment(partitions))

    def read(self, most: int) -> dict[Partition, list[Message]]:
        """The messages that are there; nothing if none came in half a second."""
        if time.monotonic() - self._looked > _METADATA_SECONDS:
            known = self.partitions
            if new := [each for each in self._existing() if each not in known]:
                self._consumer.incremental_assign(self._assignment(new))
        found: dict[Partition, list[Message]] = {}
        for message in self._consumer.consume(min(most, _AT_ONCE), _WAIT_SECONDS):
            partition = Partition(message.topic(), message.partition())
            if error := message.error():
                self._refuse(error, partition)
                self._ends[partition] = _End(message.offset())
                continue
            self._ends.pop(partition, None)
            _, milliseconds = message.timestamp()
            made = Message(message.offset(), milliseconds, message.value() or b"")
            found.setdefault(partition, []).append(made)
            self.offsets[partition] = message.offset() + 1
        return found

    def ends(self) -> Mapping[Partition, int]:
        """The last time, ms since 1970, when a partition had no message that was not read.

        Partitions with such messages are left out. Kafka says only once that there are none. More
        may come while a broker is away, or a partition has no leader: so partitions are asked.
        """
        for partition, (end, at) in sorted(self._ends.items(), key=lambda each: each[1].at):
            if (now := _now()) - at < _END_MILLISECONDS:
                break
            place = self._kafka.TopicPartition(*partition)
            try:
                _, offset = self._asker.get_watermark_offsets(place, _WAIT_SECONDS, cached=False)
            except self._kafka.KafkaException as error:
                self._look_at_silence(partition, now, error)
                break  # one is enough: rows wait for all
            self._silent_since.pop(partition, None)
            if offset > end:
                del self._ends[partition]  # they are on their way
            else:
                self._ends[partition] = _End(end, now)
        return {partition: end.at for partition, end in self._ends.items() if end.at}

    def _look_at_silence(self, partition: Partition, now: int, error: Any) -> None:
        """Says of a partition that has been silent for a while that it is waited for."""
        since = self._silent_since.setdefault(partition, now)
        if now - since >= _SILENT_MILLISECONDS:
            _log.warning("%s does not answer, rows wait for it: %s", partition, _said(error))
            self._silent_since[partition] = now + _TOLD_MILLISECONDS

    def close(self) -> None:
        self._consumer.close()
        if "_asker" in vars(self):
            self._asker.close()

    def _existing(self) -> list[Partition]:
        self._looked = time.monotonic()
        found = []
        for topic in self.topics:
            try:
                topics = self._consumer.list_topics(topic, timeout=_METADATA_SECONDS).topics
            except self._kafka.KafkaException as error:
                raise RunError(f"kafka://{self._brokers} does not answer: {_said(error)}") from None
            known = topics[topic]
            if known.error or not known.partitions:
                raise UserError(f"kafka://{self._brokers} has no topic {topic}: {known.error}")
            found += [Partition(topic, number) for number in sorted(known.partitions)]
        return found

    def _assignment(self, partitions: Sequence[Partition]) -> list[Any]:
        first = self._kafka.OFFSET_BEGINNING
        return [
            self._kafka.TopicPartition(*each, self.offsets.get(each, first)) for each in partitions
        ]

    def _refuse(self, error: Any, partition: Partition) -> None:
        """Refuses all but the end of a partition."""
        if error.name() == "_PARTITION_EOF":
            return
        if error.name() == "_AUTO_OFFSET_RESET":
            wanted = self.offsets.get(partition)
            raise RunError(
                f"topic {partition.topic}, partition {partition.number}, has no message {wanted} "
                "any more: it was deleted before it was collected. To go on with the oldest that "
                "are there, begin another --output"
            )
        raise RunError(f"topic {partition.topic}: {error.str()}")


def _now() -> int:
    return time.time_ns() // 1_000_000


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
