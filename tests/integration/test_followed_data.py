"""Runs that train datasets while these appear."""

import json
import pathlib
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from cluster_process import PATIENCE, Program, checkpoints, local_cluster, read_report
from counting_job import flags, trained

from tests import counting_task
from tfps.data import manifest
from tfps.data.manifest import Manifest

RECORDS, DATASETS = 300, 12
TASK = counting_task.CountingTask(records=RECORDS * DATASETS, step_seconds=0.05)


class Stream:
    """Datasets of which each holds records of its own."""

    def __init__(self, root: pathlib.Path) -> None:
        self.directory = root
        self._written = 0

    def add(self, name: str) -> Manifest:
        """Writes the next dataset under a name."""
        first, self._written = self._written * RECORDS, self._written + 1
        sizes = (RECORDS // 2, RECORDS - RECORDS // 2)
        return counting_task.write(self.directory / name, TASK, sizes, first=first)


@pytest.fixture(name="stream")
def stream_fixture(tmp_path: pathlib.Path) -> Stream:
    return Stream(tmp_path / "stream")


def job(stream: Stream, root: pathlib.Path, *more: str) -> list[str]:
    data = Manifest("", [], [], (), manifest.RecordIndex(1, ()), directory=str(stream.directory))
    return flags(data, root / "job", TASK, "--train.batch_size=20", *more)


def position(root: pathlib.Path) -> dict[str, object]:
    [kept] = checkpoints(root / "job")[-1]["datasets"]
    return kept


def test_a_run_ends_when_no_dataset_follows_and_the_next_one_trains_those_that_came_since(
    stream: Stream, tmp_path: pathlib.Path
) -> None:
    """In one process; the datasets that are trained may be deleted."""
    for number in (1, 2):
        stream.add(str(number))
    argv = job(stream, tmp_path, "--data.follow_seconds=2", "--train.keep_checkpoints=9")
    with Program(*argv) as program:
        program.see(r"2 datasets trained, and no other followed: 600 records so far")
        program.see(r"exported the model")
        assert program.finish() == 0, program.text
    for each in (stream.directory / "1", stream.directory / "2"):
        each.rename(tmp_path / each.name)
    first = stream.add("3")
    broken = stream.directory / "4"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    stream.add("5")
    with Program(*argv) as program:
        program.see(r"4 is set aside: .*manifest.json is not JSON")
        program.see(r"4 datasets trained, and no other followed: 1,200 records so far")
        assert program.finish() == 0, program.text
    kept = position(tmp_path)
    assert (kept["followed"], kept["records"], kept["last"]) == (4, 1200, "5")
    report = read_report(tmp_path / "job")
    assert report["followed"]["not_taken"] == 1
    assert "behind '5'" in report["followed"]["next"]
    counted = trained(first, TASK, tmp_path / "job", epoch=4)
    np.testing.assert_array_equal(counted, np.arange(TASK.records) < 1200)


def test_what_epochs_are_for_is_refused(stream: Stream, tmp_path: pathlib.Path) -> None:
    argv = job(stream, tmp_path, "--train.epochs=3", "--data.follow_seconds=2")
    with Program(*argv) as program:
        assert program.finish() == 2, program.text
    assert "train.epochs=3: data.follow_seconds=2 trains each dataset once; set" in program.text


@pytest.fixture(name="writing")
def writing_fixture(stream: Stream) -> Iterator[threading.Event]:
    """Writes a dataset a second, until all are there; the event begins it."""
    begin, stop = threading.Event(), threading.Event()

    def write() -> None:
        begin.wait()
        for number in range(DATASETS):
            if not stop.wait(1.0):
                stream.add(f"{number:03}")

    thread = threading.Thread(target=write)
    thread.start()
    yield begin
    stop.set()
    begin.set()
    thread.join()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_record_is_trained_whoever_dies_while_datasets_come(
    stream: Stream, writing: threading.Event, tmp_path: pathlib.Path
) -> None:
    seconds = ("--train.checkpoint_seconds=2", "--train.keep_checkpoints=1000")
    argv = job(stream, tmp_path, "--data.follow_seconds=30", "--progress_seconds=0.2", *seconds)
    writing.set()
    with local_cluster(2, 2, argv) as program:
        for task, dataset in (("worker 1", 3), ("ps 1", 5), ("chief 0", 7), ("worker 0", 9)):
            program.see(rf"\[chief\] .* dataset ({dataset}|{dataset + 1}): \d")
            program.tasks()[task].kill()
        program.see(rf"{DATASETS} datasets trained, and no other followed", patience=2 * PATIENCE)
        assert program.finish() == 0, program.text
    kept = position(tmp_path)
    assert (kept["followed"], kept["records"]) == (DATASETS, TASK.records)
    examples = read_report(tmp_path / "job")["examples"]
    assert (examples["trained"], examples["skipped"]) == (TASK.records, 0)
    data = manifest.read(str(stream.directory / "000"))
    counted = trained(data, TASK, tmp_path / "job", epoch=DATASETS)
    assert counted.min() >= 1, json.dumps(examples)
    assert counted.sum() - TASK.records <= examples["repeated"]
