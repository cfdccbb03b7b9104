"""Rows that keep coming become datasets; each gets into one, whoever is killed."""

import itertools
import json
import pathlib
import random
import threading
import time
from collections.abc import Iterator

import pytest

from tests.kafka_broker import Broker
from tests.trainer.collecting import PATIENCE, collected, configured, killed_again_and_again
from tfps.data import manifest
from tfps.errors import RunError, UserError
from trainer.datasets.appearing_files import AppearingFiles
from trainer.datasets.collection import Collector, Sealing
from trainer.datasets.kafka_messages import KafkaMessages
from trainer.datasets.kafka_topic import KafkaTopic
from trainer.datasets.row_encoding import ConfiguredExperiment
from trainer.datasets.row_layout import RowLayout


@pytest.fixture(name="experiment")
def experiment_fixture(tmp_path: pathlib.Path) -> ConfiguredExperiment:
    return configured(tmp_path)


@pytest.fixture(name="broker")
def broker_fixture() -> Iterator[Broker]:
    with Broker("clicks") as broker:
        yield broker


def row(number: int, **more: object) -> str:
    return json.dumps({"number": number, "name": f"n{number}", "clicked": 1, **more})


def topic(broker: Broker, experiment: ConfiguredExperiment) -> KafkaTopic:
    return KafkaTopic(KafkaMessages.of(broker.url, ""), RowLayout.of(experiment().task))


def collect(
    source: KafkaTopic | AppearingFiles,
    experiment: ConfiguredExperiment,
    output: pathlib.Path,
    datasets: int,
    sealing: Sealing,
) -> None:
    """Collects until some datasets more are sealed."""
    stop = threading.Event()
    collector = Collector(experiment, source, str(output), sealing)
    ended = len(list(output.glob("*/manifest.json"))) + datasets

    def watch() -> None:
        deadline = time.monotonic() + PATIENCE
        while len(list(output.glob("*/manifest.json"))) < ended and time.monotonic() < deadline:
            if stop.wait(0.05):
                return
        stop.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        collector.run(stop)
    finally:
        stop.set()
        source.close()
        watcher.join()


def test_messages_become_datasets_and_the_next_run_goes_on_behind_them(
    broker: Broker, experiment: ConfiguredExperiment, tmp_path: pathlib.Path
) -> None:
    output, sealing = tmp_path / "stream", Sealing(PATIENCE, 10, shards=2, max_bad_rows=3)
    broker.send(0, [row(0, size=2.5), row(1, size=None), row(2, size=4, extra=[1])])
    broker.send(1, [row(3), "{", row(4, size="7"), "[1]", row(5, size={"a": 1}), row(6, size=True)])
    broker.send(0, [row(7)])
    collect(topic(broker, experiment), experiment, output, 1, sealing)
    [records] = collected(output, experiment)
    by_number = {record["number"]: record for record in records}
    assert sorted(by_number) == [0, 1, 2, 3, 4, 6, 7]
    sizes = {number: float(record["size"]) for number, record in by_number.items()}
    assert sizes == {0: 2.5, 1: -1.0, 2: 4.0, 3: -1.0, 4: 7.0, 6: 1.0, 7: -1.0}
    assert by_number[4]["name"] == b"n4"
    first = manifest.read(str(output / "000001"))
    assert first.rejected_rows == 3
    assert first.collected["topic"] == "clicks"
    assert {k: first.collected["offsets"][k] for k in "01"} == {"0": 4, "1": 6}

    broker.send(1, [row(number) for number in range(8, 18)])
    collect(topic(broker, experiment), experiment, output, 1, sealing)
    assert sorted(x["number"] for x in collected(output, experiment)[1]) == list(range(8, 18))


def test_one_bad_message_too_many_names_its_offset(
    broker: Broker, experiment: ConfiguredExperiment, tmp_path: pathlib.Path
) -> None:
    broker.send(2, [row(1), '{"number": "x"}'])
    with pytest.raises(UserError, match=r"topic clicks partition 2 offset 1 column \w+: .*"):
        collect(topic(broker, experiment), experiment, tmp_path / "out", 1, Sealing(1.0, 10, 1))
    assert not list((tmp_path / "out").glob("*/manifest.json"))


def test_a_dataset_is_sealed_some_seconds_after_its_first_row(
    broker: Broker, experiment: ConfiguredExperiment, tmp_path: pathlib.Path
) -> None:
    broker.send(0, [row(1)])
    collect(topic(broker, experiment), experiment, tmp_path / "out", 1, Sealing(0.2, 10_000, 1))
    [[record]] = collected(tmp_path / "out", experiment)
    assert record["number"] == 1


def test_messages_that_are_gone_are_told_of(
    broker: Broker, experiment: ConfiguredExperiment
) -> None:
    source = topic(broker, experiment)
    source.resume({"topic": "clicks", "offsets": {"0": 5}})
    deadline = time.monotonic() + PATIENCE

    def read() -> None:
        while time.monotonic() < deadline:
            source.read(10)

    with pytest.raises(RunError, match=r"partition 0, has no message 5 any more: it was deleted"):
        read()
    source.close()


@pytest.mark.parametrize(
    ("url", "settings", "message"),
    [
        ("kafka://host", "", "write kafka://HOST:PORT/TOPIC"),
        ("kafka://127.0.0.1:1/t", "no.such.setting=1", "--kafka_config: No such configuration"),
        ("kafka://127.0.0.1:1/t", "security.protocol", "line 1: write NAME=VALUE"),
    ],
)
def test_what_names_no_topic_is_refused(
    url: str, settings: str, message: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "settings"
    path.write_text(f"{settings}\n# a comment\n")
    with pytest.raises(UserError, match=message):
        KafkaMessages.of(url, str(path))


def test_files_are_taken_by_name_each_once(
    experiment: ConfiguredExperiment, tmp_path: pathlib.Path
) -> None:
    incoming, output = tmp_path / "incoming", tmp_path / "stream"
    incoming.mkdir()

    def write(name: str, *numbers: int) -> None:
        rows = "".join(f"{number},n,1,3.5\n" for number in numbers)
        (incoming / name).write_text(f"number,name,clicked,size\n{rows}")

    def run(datasets: int) -> list[list[object]]:
        source = AppearingFiles(str(incoming), RowLayout.of(experiment().task))
        collect(source, experiment, output, datasets, Sealing(PATIENCE, 3, 1))
        return [[x["number"] for x in records] for records in collected(output, experiment)]

    write("a.csv", 1, 2)
    write("b.csv", 3, 4)
    write("_c.csv", 99)
    assert run(1) == [[1, 2, 3, 4]]
    write("c.csv", 5, 6, 7)
    write("a0.csv", 98)  # too late
    assert run(1) == [[1, 2, 3, 4], [5, 6, 7]]
    assert manifest.read(str(output / "000002")).collected == {"file": "c.csv"}


def test_another_input_is_not_gone_on_with(
    experiment: ConfiguredExperiment, tmp_path: pathlib.Path
) -> None:
    source = AppearingFiles(str(tmp_path), RowLayout.of(experiment().task))
    with pytest.raises(UserError, match=r"was collected from \{'topic': 'clicks'\}; name that"):
        source.resume({"topic": "clicks"})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_message_gets_into_one_dataset_though_the_collector_is_killed_again_and_again(
    broker: Broker, experiment: ConfiguredExperiment, tmp_path: pathlib.Path
) -> None:
    output, draw, numbers = tmp_path / "stream", random.Random(4), itertools.count()

    def send() -> int:
        some = list(itertools.islice(numbers, 5))
        broker.send(draw.randrange(4), [row(number) for number in some])
        return some[-1] + 1

    arguments = [f"--config={experiment.config}", f"--input={broker.url}"]
    sent = killed_again_and_again(arguments, output, draw, send)
    found = [record["number"] for records in collected(output, experiment) for record in records]
    assert sorted(found) == list(range(sent))
