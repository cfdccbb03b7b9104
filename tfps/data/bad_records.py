"""Finds the records of a shard that cannot be trained, and says what is wrong with each.

A worker's error often names neither record nor reason: TensorFlow reads and parses records in
batches. The chief reads the same records again, one by one.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from tfps.data.examples import LISTS, kind_of
from tfps.data.feature import Feature
from tfps.data.record_source import RecordSource
from tfps.data.tfrecord import scan
from tfps.errors import listed

_CONTENTS = {"int64_list": "integers", "float_list": "floats", "bytes_list": "strings"}


def foreign_kind(record: bytes) -> str:
    """What a record is that is no Example, for messages; empty where it may be one."""
    return _list_with_context(record) or _sequence(record)


def _list_with_context(record: bytes) -> str:
    # Loaded here: only records that were not understood come here.
    from tensorflow_serving.apis.input_pb2 import ExampleListWithContext

    try:
        found = ExampleListWithContext.FromString(record)
    except DecodeError:
        return ""
    # An Example that is read so has no feature with a value, if it can be read at all.
    parts = [found.context, *found.examples]
    values = [value for part in parts for value in part.features.feature.values()]
    if not any(value.WhichOneof("kind") for value in values):
        return ""
    names = {name for part in found.examples for name in part.features.feature}
    return (
        f"is an ExampleListWithContext of {len(found.examples)} examples (context: "
        f"{listed(sorted(found.context.features.feature))}; examples: {listed(sorted(names))}), "
        "not a tf.train.Example"
    )


def _sequence(record: bytes) -> str:
    try:
        found = tf.train.SequenceExample.FromString(record).feature_lists.feature_list
    except DecodeError:
        return ""
    if not found:
        return ""
    return (
        f"is a tf.train.SequenceExample (feature_lists: {listed(sorted(found))}), not a "
        "tf.train.Example"
    )


@dataclasses.dataclass(frozen=True)
class BadRecord:
    """A record that cannot be trained, with those after it that are lost with it."""

    number: int  # in its shard, from 0
    offset: int  # byte at which it begins; of what is decompressed in a compressed shard
    reason: str
    # More than 1 where the file ends or a length is damaged: up to the next known offset.
    records: int = 1
    next_offset: int = 0  # byte of the record after them; 0 where there is none

    @property
    def end(self) -> int:
        return self.number + self.records

    def __str__(self) -> str:
        return f"record {self.number} (byte {self.offset}) {self.reason}"


def find(
    source: RecordSource, features: Sequence[Feature], first: int, end: int
) -> list[BadRecord]:
    """Checks records `first` to `end` of a shard against their checksums and the features.

    The records before them, from the nearest known offset on, are checked against their checksums.
    """
    bad: list[BadRecord] = []
    number, offset = _known(source, first)
    while number < end:
        problem = f"is missing: the manifest says the file holds {source.end} or more"
        for record in scan(source.path, source.compression, number, offset):
            if record.number == end or record.data is None:
                problem = record.problem
                break
            number, offset = record.number + 1, record.next_offset
            reason = record.problem
            if not reason and record.number >= first:
                reason = find_problem(record.data, features)
            if reason:
                bad.append(BadRecord(record.number, record.offset, reason, 1, offset))
        if number < end:
            next_number, next_offset = _known_behind(source, number)
            records = next_number - number
            bad.append(BadRecord(number, offset, problem, records, next_offset))
            number, offset = next_number, next_offset
    passed_over = {number for number, _, _ in source.bad_ranges}
    return [each for each in bad if each.number not in passed_over]


def describe(bad: Sequence[BadRecord]) -> str:
    """The first of some bad records, how many there are, and the way out if it lacks a feature."""
    if not bad:
        return ""
    count = sum(each.records for each in bad)
    others = f"; it is the first of {count:,} bad records there" if count > 1 else ""
    is_missing = bad[0].reason.startswith("has no ")
    way_out = "; tfps.Feature(default=…) says what it counts as" if is_missing else ""
    return f"{bad[0]}{others}{way_out}"


def _known(source: RecordSource, record: int) -> tuple[int, int]:
    entry = min((record - source.first) // source.stride, len(source.offsets) - 1)
    return source.first + entry * source.stride, source.offsets[entry]


def _known_behind(source: RecordSource, record: int) -> tuple[int, int]:
    """The nearest known record after one, and its byte; the end and byte 0 without one."""
    entry = (record - source.first) // source.stride + 1
    if entry < len(source.offsets):
        offset = source.offsets[entry]
        if offset < tf.io.gfile.stat(source.path).length:
            return source.first + entry * source.stride, offset
    return source.end, 0


def find_problem(record: bytes, features: Sequence[Feature], may_lack: bool = False) -> str:
    """What is wrong with a record, such as "has no 'age'"; empty for a good one.

    Ids must lie within their vocabularies. With `may_lack`, features may be missing or empty.
    """
    try:
        held = tf.train.Example.FromString(record).features.feature
    except DecodeError:
        return foreign_kind(record) or "is no tf.train.Example"
    may_be_foreign = not features or any(kind_of(each, held) is None for each in features)
    if may_be_foreign and (found := foreign_kind(record)):
        return found
    for feature in features:
        if found := _problem(feature, held, may_lack):
            return found
    return ""


def _problem(feature: Feature, held: Any, may_lack: bool) -> str:
    kind, is_fine = kind_of(feature, held), may_lack or feature.may_be_absent
    if kind is None and (is_fine or feature.name not in held):
        return "" if is_fine else f"has no {feature.name!r} (it has {listed(sorted(held))})"
    if kind is None:
        return f"has no value in {feature.name!r}"
    if kind != LISTS[feature.dtype]:
        return f"holds {_CONTENTS[kind]} in {feature.name!r}, not {feature.dtype}"
    values = getattr(held[feature.name], kind).value
    if not values and is_fine:
        return ""
    if not feature.is_ragged and len(values) != feature.size:
        return f"holds {len(values)} values in {feature.name!r}, not {feature.size}"
    if feature.vocabulary_size and values:
        for value in (min(values), max(values)):
            if not 0 <= value < feature.vocabulary_size:
                return (
                    f"holds the id {value} in {feature.name!r}, outside "
                    f"[0, {feature.vocabulary_size})"
                )
    return ""
