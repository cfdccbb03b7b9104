"""Which datasets are told to be sorted, and which are not."""

import logging
import re

import numpy as np

import tfps
from tfps.data.record_order import SHUFFLED_RECORDS, describe

COUNT = 10_000  # in one shard more than training shuffles at once
DRAW = np.random.default_rng(5)
DRAWN = DRAW.integers(0, 1000, COUNT)


def found(directory, columns, shards=1):
    """The columns that are named, each with the share of equal neighbours beyond chance."""
    names = [name for name in columns if name != "label"]
    written = tfps.write_dataset(
        str(directory), {n: columns[n] for n in names}, columns.get("label"), shards=shards
    )
    named = re.findall(r"'([^']+)' by ([\d.]+)", describe(written, "--hint"))
    return {name: float(share) for name, share in named}


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
RUNS = {
    "user": np.sort(DRAWN % 97),
    "grouped": np.repeat(DRAW.permutation(COUNT // 20), 20),  # in no order
    "text": np.sort(SHUFFLED["text"])[::-1] > "user 5",
    "drawn": DRAWN,
    "label": np.arange(COUNT) * 4 // COUNT,
}


def test_shuffled_columns_are_not_named(tmp_path):
    assert found(tmp_path, SHUFFLED) == {}


def test_runs_are_the_label_s_first(tmp_path):
    named = found(tmp_path, RUNS)
    assert list(named) == ["label", "user", "grouped", "text"]
    assert all(share >= 0.9 for share in named.values())
    rare = {"rare": (np.arange(COUNT) < 300).astype(int)}
    assert found(tmp_path / "rare", rare)["rare"] > 0.9


def test_what_training_shuffles_whole_may_be_sorted(tmp_path):
    users = np.sort(DRAWN % 50)
    assert found(tmp_path / "one", {"user": users[:SHUFFLED_RECORDS]}) == {}
    assert found(tmp_path / "dealt", {"user": users}, shards=2) == {}
    assert tfps.Data().shuffle_buffer == SHUFFLED_RECORDS


def test_a_shard_for_each_value_is_a_run_and_few_records_are_not_judged(tmp_path):
    kinds = np.arange(400) % 20  # dealt out: each shard has records of one kind
    assert found(tmp_path / "many", {"kind": kinds}, shards=20) == {"kind": 1.0}
    assert found(tmp_path / "few", {"kind": kinds[:60]}, shards=20) == {}


def test_write_dataset_warns_and_shuffles(tmp_path, caplog):
    x, y = {"user": RUNS["user"]}, RUNS["label"]
    with caplog.at_level(logging.WARNING):
        tfps.write_dataset(str(tmp_path / "sorted"), x, y)
        [told] = caplog.messages
        assert "neighbours are equal in label 'label' by 1.00, 'user' by " in told
        assert "if this is the order of time" in told
        assert 'shuffle="whole" writes the records in a drawn order' in told
        caplog.clear()
        written = tfps.write_dataset(str(tmp_path / "shuffled"), x, y, shuffle="whole", seed=3)
        assert caplog.messages == []
    assert written.shards[0].records == COUNT
