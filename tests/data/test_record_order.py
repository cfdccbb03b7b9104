"""Which datasets are told to be sorted, and which are not."""

import logging

import numpy as np
import pytest

import tfps
from tfps.data.record_order import SHUFFLED_RECORDS, SortedColumn, describe, find_sorted

COUNT = 10_000  # in one shard more than training shuffles at once
DRAW = np.random.default_rng(5)
DRAWN = DRAW.integers(0, 1000, COUNT)


def found(directory, columns, shards=1):
    """By column: its correlation, and whether it rises."""
    names = [name for name in columns if name != "label"]
    written = tfps.write_dataset(
        str(directory), {n: columns[n] for n in names}, columns.get("label"), shards=shards
    )
    return {
        column.name: (round(column.correlation, 1), column.is_rising)
        for column in find_sorted(written)
    }


SHUFFLED = {
    "constant": np.zeros(COUNT),
    "two values": DRAWN % 2,
    "nearly constant": (DRAWN == 0).astype(int),
    "skewed": np.minimum(DRAW.zipf(1.3, COUNT), 10**6),
    "uniform": DRAW.random(COUNT),
    "unknown": np.where(DRAWN < 500, np.nan, DRAWN),
    "text": np.array([f"user {number}" for number in DRAWN]),
    "pair": DRAW.integers(0, 50, (COUNT, 2)),
    "image": np.zeros((COUNT, 65), np.uint8) + np.arange(COUNT)[:, None],  # not looked at
    "label": DRAW.integers(0, 10, COUNT),
}
SORTED = {
    "user": np.sort(DRAWN),
    "falling": -np.sort(DRAWN),
    "grouped": np.repeat(DRAW.permutation(COUNT // 20), 20),  # runs of 20, in no order
    "nearly constant": (np.arange(COUNT) < 300).astype(int),
    "noisy": np.arange(COUNT) + DRAW.normal(0, 500, COUNT),
    "text": np.sort(SHUFFLED["text"]),
    "second of two": np.stack([DRAWN, np.sort(DRAWN)], axis=1),
    "drawn": DRAWN,
    "label": np.arange(COUNT) * 4 // COUNT,
}


def test_shuffled_columns_are_not_told_of(tmp_path):
    assert found(tmp_path, SHUFFLED) == {}


def test_sorted_columns_and_runs_are(tmp_path):
    told = found(tmp_path, SORTED)
    assert told.keys() == SORTED.keys() - {"drawn"}
    assert next(iter(told)) == "label"
    assert all(correlation >= 0.8 for correlation, _ in told.values())
    rising = {name for name, (_, is_rising) in told.items() if is_rising}
    assert rising == {"user", "second of two"}


def test_what_training_shuffles_whole_may_be_sorted(tmp_path):
    users = np.sort(DRAWN)
    assert found(tmp_path / "one", {"user": users[:SHUFFLED_RECORDS]}) == {}
    assert found(tmp_path / "dealt", {"user": users}, shards=2) == {}
    assert tfps.Data().shuffle_buffer == SHUFFLED_RECORDS


def test_few_records_are_not_judged(tmp_path):
    assert found(tmp_path, {"user": np.arange(30)}, shards=30) == {}


def test_write_dataset_warns_and_shuffles(tmp_path, caplog):
    x, y = {"user": SORTED["user"]}, SORTED["label"]
    with caplog.at_level(logging.WARNING):
        tfps.write_dataset(str(tmp_path / "sorted"), x, y)
        [told] = caplog.messages
        assert "'user' by 1.00" in told
        assert 'shuffle="whole" writes the records in a drawn order' in told
        caplog.clear()
        written = tfps.write_dataset(str(tmp_path / "shuffled"), x, y, shuffle="whole", seed=3)
        assert caplog.messages == []
    assert written.shards[0].records == COUNT


@pytest.mark.parametrize("is_rising", [False, True])
def test_the_order_of_time_may_be_wanted(is_rising):
    columns = [SortedColumn(name, False, 0.9, is_rising) for name in "abcdef"]
    told = describe(columns, "--mend")
    assert "'a' by 0.90, 'b' by 0.90, 'c' by 0.90, 'd' by 0.90 and in 2 more (" in told
    assert ("'a' grows from record to record: if this is the order of time" in told) == is_rising
    assert "--mend writes the records in a drawn order" in told
    assert describe([], "--mend") == ""
