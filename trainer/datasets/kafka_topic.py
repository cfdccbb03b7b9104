"""Rows that are messages of a Kafka topic, each a JSON object, read once and in order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfps.data.row_format import BadRow
from tfps.errors import UserError
from trainer.datasets.kafka_messages import KafkaMessages, Message, Partition
from trainer.datasets.message_block import MessageBlock, row_of
from trainer.datasets.row_layout import Block, RowLayout

_TOPIC, _OFFSETS = "topic", "offsets"


class KafkaTopic:
    """A source of `trainer.collect`."""

    def __init__(self, messages: KafkaMessages, layout: RowLayout):
        self._messages = messages
        [self._topic] = messages.topics
        self._layout = layout

    @property
    def place(self) -> Mapping[str, Any]:
        offsets = {str(each.number): offset for each, offset in self._messages.offsets.items()}
        return {_TOPIC: self._topic, _OFFSETS: offsets}

    def resume(self, place: Mapping[str, Any]) -> None:
        if place and place.get(_TOPIC) != self._topic:
            raise UserError(
                f"--input: the newest dataset in --output was collected from {dict(place)}, not "
                f"from topic {self._topic}; name that input, or another --output"
            )
        known = place.get(_OFFSETS, {})
        self._messages.begin({Partition(self._topic, int(k)): int(v) for k, v in known.items()})

    def read(self, rows: int) -> Iterable[Block] | None:
        """The messages that are there; None if none came in half a second."""
        found = self._messages.read(rows)
        return [self._block(*each) for each in found.items()] or None

    def close(self) -> None:
        self._messages.close()

    def _block(self, partition: Partition, messages: Sequence[Message]) -> MessageBlock:
        rows, wrong = [], []
        for message in messages:
            try:
                rows.append((message.offset, row_of(partition, message)))
            except BadRow as bad:
                wrong.append(bad)
        size = sum(len(message.content) for message in messages)
        return MessageBlock.of(partition, rows, wrong, self._layout, size)
