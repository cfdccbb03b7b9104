"""Divides records by chance among datasets, such as one to train and one to evaluate."""

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from tfps.data.dataset_writer import DatasetWriter
from tfps.data.examples import CountsSum, RecordCounter
from tfps.data.record_order import drawn_numbers
from tfps.data.schema import Schema
from tfps.data.tfrecord import FOOTER_BYTES, HEADER_BYTES
from tfps.errors import UserError
from tfps.storage.paths import is_file_name

_AT_ONCE = 4096  # records
_EXAMPLE = "such as --split=train:0.9,eval:0.1"
# Keeps the draws apart from those of a shuffle, which has the same seed.
_STREAM = 0x5EED


@dataclasses.dataclass
class Part:
    """A dataset that is written, and its share of the records."""

    writer: DatasetWriter
    share: float
    counts: CountsSum = dataclasses.field(default_factory=CountsSum)


def parse_split(text: str) -> Mapping[str, float]:
    """The parts that `--split` names, with their shares, which sum to 1."""
    found: dict[str, float] = {}
    for each in filter(None, text.split(",")):
        name, _, share = each.strip().partition(":")
        try:
            found_share = float(share)
        except ValueError:
            found_share = 0.0
        if not 0 < found_share < 1 or not is_file_name(name) or name in found:
            raise UserError(
                f"--split={text}: {each!r} is no NAME:SHARE with a name of its own and a share "
                f"between 0 and 1, {_EXAMPLE}"
            )
        found[name] = found_share
    if found and abs(sum(found.values()) - 1) > 1e-6:
        raise UserError(f"--split={text}: the shares sum to {sum(found.values()):g}, not 1")
    return found


def write_parts(framed: Iterable[bytes], parts: Sequence[Part], schema: Schema, seed: int) -> None:
    """Draws the part of each record; the draws depend on the seed and its place alone.

    A single part has all records, which are counted already.
    """
    if len(parts) == 1:
        parts[0].writer.write_all_in_turn(framed)
        return
    ends = list(itertools.accumulate(part.share for part in parts))[:-1]
    counters = [RecordCounter(schema.all) for _ in parts]
    draws = (number / 2.0**64 for number in drawn_numbers([seed, _STREAM]))
    stream = iter(framed)
    while some := list(itertools.islice(stream, _AT_ONCE)):
        chosen: list[list[bytes]] = [[] for _ in parts]
        for record in some:
            chosen[bisect.bisect_right(ends, next(draws))].append(record)
        for part, counter, records in zip(parts, counters, chosen, strict=True):
            part.writer.write_all_in_turn(records)
            for record in records:
                counter.add(record[HEADER_BYTES:-FOOTER_BYTES])
    for part, counter in zip(parts, counters, strict=True):
        part.counts = CountsSum(counter.finish())
