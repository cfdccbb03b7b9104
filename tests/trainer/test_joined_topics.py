"""Rows and their labels come in two topics; each row gets into one dataset, with its label."""

import itertools
import json
import pathlib
import random
import re
import time
from collections.abc import Iterator

import pytest

from tests.kafka_broker import Broker
from tests.trainer.collecting import PATIENCE, collected, configured, killed_again_and_again
from tfps.errors import UserError
from trainer.datasets import joined_topics, kafka_messages
from trainer.datasets.joined_topics import Join, JoinedTopics
from trainer.datasets.kafka_messages import KafkaMessages
from trainer.datasets.row_encoding import ConfiguredExperiment
from trainer.datasets.row_layout import RowLayout

WINDOW = 10.0
BEGAN = 1_700_000_000_000  # long ago: all windows are over once all messages are read


@pytest.fixture(name="experiment")
def experiment_fixture(tmp_path: pathlib.Path) -> ConfiguredExperiment:
    return configured(tmp_path)


@pytest.fixture(name="broker")
def broker_fixture() -> Iterator[Broker]:
    with Broker("shown,clicks") as broker:
        yield broker


def joined(
    broker: Broker, experiment: ConfiguredExperiment, window: float = WINDOW
) -> JoinedTopics:
    join = Join("number", window, ("clicked",))
    messages = KafkaMessages.of(broker.url, "", topics=2)
    return JoinedTopics(messages, join, RowLayout.of(experiment().task))


def shown(broker: Broker, seconds: float, number: int, partition: int = 0, **more: object) -> None:
    value = json.dumps({"number": number, "name": "n", **more})
    broker.send(partition, [value], "shown", BEGAN + round(1000 * seconds))


def clicked(broker: Broker, seconds: float, number: int, value: float = 1) -> None:
    said = json.dumps({"number": number, "clicked": value})
    broker.send(0, [said], "clicks", BEGAN + round(1000 * seconds))


def rows(source: JoinedTopics, count: int, most: int = 1000) -> list[tuple[int, float]]:
    """Number and label of so many rows, in ascending order."""
    found: list[tuple[int, float]] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < deadline:
        for block in source.read(most) or ():
            columns = block.batch.to_pydict()
            found += zip(columns["number"], columns["clicked"], strict=True)
    return sorted(found)


def settled(source: JoinedTopics, seconds: float = 3.0) -> None:
    """Reads what is there, of which no row is sealed."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        assert not source.read(1000)


def test_a_row_has_the_label_of_its_window_and_else_0(
    broker: Broker, experiment: ConfiguredExperiment
) -> None:
    shown(broker, 0, 1)
    shown(broker, 1, 2, partition=1)
    shown(broker, 2, 3, partition=3)
    shown(broker, 3, 4)
    clicked(broker, 9.9, 1, value=5)
    clicked(broker, 9.95, 1, value=6)  # a second one
    clicked(broker, 11.5, 2)  # too late
    clicked(broker, 1.5, 3)  # its sender's clock is behind
    clicked(broker, 5, 99)
    source = joined(broker, experiment)
    source.resume({})
    assert rows(source, 4) == [(1, 5), (2, 0), (3, 1), (4, 0)]
    assert source.place["counts"] == {"labels_without_row": 2}
    source.close()


def test_what_comes_again_or_late_is_left_out_and_counted(
    broker: Broker, experiment: ConfiguredExperiment
) -> None:
    shown(broker, 5, 1, partition=2)
    shown(broker, 0, 1)  # the first, though it may be read later
    shown(broker, 9, 1)
    shown(broker, 10, 1)  # another window
    source = joined(broker, experiment)
    source.resume({})
    assert rows(source, 2) == [(1, 0), (1, 0)]
    assert source.place["counts"]["duplicates"] == 2
    shown(broker, 3, 7, partition=1)
    shown(broker, 1_000_000_000, 8, partition=1)
    clicked(broker, 4, 7)
    settled(source)
    assert source.place["counts"] == {"duplicates": 2, "late_rows": 1, "late_labels": 1}
    source.close()


def test_so_many_rows_are_sealed_and_those_of_the_same_moment(
    broker: Broker, experiment: ConfiguredExperiment
) -> None:
    for number in range(6):
        shown(broker, number // 2, number)
    source = joined(broker, experiment)
    source.resume({})
    deadline, found = time.monotonic() + PATIENCE, []
    while len(found) < 3 and time.monotonic() < deadline:
        some = [block.batch.num_rows for block in source.read(1) or ()]
        found += [sum(some)] if some else []
    assert found == [2, 2, 2]
    source.close()


def test_it_goes_on_with_rows_that_wait(broker: Broker, experiment: ConfiguredExperiment) -> None:
    now = time.time() - BEGAN / 1000
    shown(broker, 0, 1)
    shown(broker, 1, 2)
    shown(broker, now, 3, partition=1)
    clicked(broker, now + 1, 3)
    first = joined(broker, experiment, window=3600.0)
    first.resume({})
    assert rows(first, 2) == [(1, 0), (2, 0)]
    place = json.loads(json.dumps(first.place))
    first.close()
    assert place["needed"]["shown/1"] == 0
    shown(broker, now + 2, 4, partition=2)
    shown(broker, now + 100_000, 5, partition=1)
    second = joined(broker, experiment, window=3600.0)
    second.resume(place)
    # What is made later than now ends all windows before.
    for partition in (0, 2, 3):
        shown(broker, now + 100_000, 10 + partition, partition=partition)
    for partition in range(4):
        said = json.dumps({"number": 50 + partition, "clicked": 1})
        made = BEGAN + round(1000 * (now + 100_000))
        broker.send(partition, [said], "clicks", made)
    assert rows(second, 2) == [(3, 1), (4, 0)]
    assert second.place["counts"] == {}
    with pytest.raises(UserError, match=r"'window_seconds': 3600.0\}, not from .*: 10.0\}"):
        joined(broker, experiment).resume(place)
    second.close()


def test_rows_wait_for_labels_of_a_broker_that_is_away(
    broker: Broker,
    experiment: ConfiguredExperiment,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(joined_topics, "_DELAY_MILLISECONDS", 1000)
    monkeypatch.setattr(kafka_messages, "_SILENT_MILLISECONDS", 1000)
    source = joined(broker, experiment, window=2.0)
    source.resume({})
    made = time.time() - BEGAN / 1000
    shown(broker, made, 1)
    deadline = time.monotonic() + PATIENCE
    while not source.place["read"].get("shown/0") and time.monotonic() < deadline:
        assert not source.read(1000)
    assert not source.read(1000)  # it hears that this was the last one
    assert "does not answer" not in caplog.text
    with broker.away():
        settled(source, seconds=5)
    assert re.search("partition . does not answer, rows wait for it: ", caplog.text)
    clicked(broker, made + 1, 1)
    assert rows(source, 1) == [(1, 1)]
    source.close()


@pytest.mark.parametrize("value", ["{", '{"name": "x"}', '{"number": [1]}'])
def test_what_has_no_key_is_a_bad_row(
    value: str, broker: Broker, experiment: ConfiguredExperiment
) -> None:
    broker.send(1, [value], "shown")
    source = joined(broker, experiment)
    source.resume({})
    deadline, bad = time.monotonic() + PATIENCE, []
    while not bad and time.monotonic() < deadline:
        bad += [str(x) for block in source.read(10) or () for x in block.wrong]
    assert len(bad) == 1
    assert bad[0].startswith("topic shown partition 1 offset 0: ")
    source.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_row_is_sealed_once_with_its_label_though_the_collector_is_killed(
    broker: Broker, experiment: ConfiguredExperiment, tmp_path: pathlib.Path
) -> None:
    output, draw, numbers = tmp_path / "stream", random.Random(5), itertools.count()

    def send() -> int:
        some = list(itertools.islice(numbers, 5))
        values = [json.dumps({"number": number, "name": "n"}) for number in some]
        broker.send(draw.randrange(4), values, "shown")
        clicks = [json.dumps({"number": k, "clicked": 1}) for k in some if k % 3 == 0]
        broker.send(draw.randrange(4), clicks, "clicks")
        return some[-1] + 1

    arguments = [f"--config={experiment.config}", f"--input={broker.url}"]
    joins = ["--join=number", "--window_seconds=2"]
    sent = killed_again_and_again([*arguments, *joins], output, draw, send)
    found = [record for records in collected(output, experiment) for record in records]
    truth = [(k, float(k % 3 == 0)) for k in range(sent)]
    assert sorted((x["number"], float(x["clicked"])) for x in found) == truth
