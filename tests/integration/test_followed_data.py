"""Runs that train datasets while these appear."""

import json
import os
import pathlib
import random
import threading
from collections.abc import Iterator

import numpy as np
import psutil
import pytest
from cluster_process import PATIENCE, Program, checkpoints, read_report, wait_until
from counting_job import flags, trained

import tfps
from tests import counting_task
from tfps.data import manifest
from tfps.data.manifest import Manifest

KILLS = int(os.environ.get("TFPS_KILLS", "1"))  # of each task
RECORDS, DATASETS = 300, 12 if KILLS == 1 else 60 * KILLS
TASK = counting_task.CountingTask(records=RECORDS * DATASETS, step_seconds=0.05)


class Stream:
    """Datasets of which each holds records of its own."""

    def __init__(self, root: pathlib.Path) -> None:
        self.directory = root
        self.written = 0

    def add(self, name: str) -> Manifest:
        """Writes the next dataset under a name."""
        first, self.written = self.written * RECORDS, self.written + 1
        sizes = (RECORDS // 2, RECORDS - RECORDS // 2)
        return counting_task.write(self.directory / name, TASK, sizes, first=first)


@pytest.fixture(name="stream")
def stream_fixture(tmp_path: pathlib.Path) -> Stream:
    return Stream(tmp_path / "stream")


def job(stream: Stream, root: pathlib.Path, *more: str) -> list[str]:
    index = manifest.RecordIndex(1, ())
    data = Manifest(
        **{"name": "", "features": [], "labels": [], "shards": (), "index": index},
        directory=str(stream.directory),
    )
    return flags(data, root / "job", TASK, "--train.batch_size=20", *more)


def position(root: pathlib.Path) -> dict[str, object]:
    [kept] = checkpoints(root / "job")[-1]["datasets"]
    return kept


@pytest.mark.slow
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


class Writing:
    """Writes a dataset a second, until all are there or enough."""

    def __init__(self, stream: Stream) -> None:
        self.begin, self.stop = threading.Event(), threading.Event()
        self._stream = stream
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        self.begin.wait()
        while self._stream.written < DATASETS and not self.stop.wait(1.0):
            self._stream.add(f"{self._stream.written:03}")

    def end(self, is_enough: bool) -> None:
        """Waits for all, or for the one that is being written."""
        if is_enough:
            self.stop.set()
        self.begin.set()
        self._thread.join()


@pytest.fixture(name="writing")
def writing_fixture(stream: Stream) -> Iterator[Writing]:
    writing = Writing(stream)
    yield writing
    writing.end(is_enough=True)


class Served:
    """The counts in the model that the job exports, as it takes deltas and versions."""

    def __init__(self, job_dir: pathlib.Path) -> None:
        wait_until(lambda: (job_dir / "export/1/saved_model.pb").exists())
        self._model = tfps.load_model(str(job_dir), follow=True)
        self.before = self.counts()

    def counts(self) -> np.ndarray:
        [table] = self._model.tables
        return self._model.rows(table, np.arange(TASK.records))[:, 0]

    def check(self) -> None:
        """No record's count becomes less."""
        counted = self.counts()
        assert (counted >= self.before).all()
        self.before = counted


def started_again(program: Program, task: str, killed: set[psutil.Process]) -> psutil.Process:
    """The process of a task, once it is another than those that were killed."""

    def look() -> psutil.Process | None:
        process = program.tasks().get(task)
        return None if process in killed else process

    found = wait_until(look)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.timeout(900 * KILLS)
def test_every_record_is_trained_whoever_dies_while_datasets_come(
    stream: Stream, writing: Writing, tmp_path: pathlib.Path
) -> None:
    """Tasks are killed in an order that is drawn, some progress after the kill before."""
    argv = job(
        stream,
        tmp_path,
        *("--data.follow_seconds=30", "--progress_seconds=0.2", "--train.checkpoint_seconds=2"),
        *("--train.keep_checkpoints=1000", "--train.export_seconds=3600"),
        "--train.export_deltas=true",
    )
    draw = random.Random(KILLS)
    victims = ["worker 0", "worker 1", "ps 0", "ps 1", "chief 0"] * KILLS
    draw.shuffle(victims)
    writing.begin.set()
    killed: set[psutil.Process] = set()
    own = ["--workers=2", "--ps=2", f"--max_restarts={KILLS + 1}", "--"]
    with Program(*own, *argv, module="cloud.local") as program:
        served = Served(tmp_path / "job")
        for victim in victims:
            for _ in range(draw.randint(1, 8)):
                program.see(r"\[chief\] .* dataset \d+: \d", seen=len(program.lines))
            served.check()
            process = started_again(program, victim, killed)
            killed.add(process)
            process.kill()
        writing.end(is_enough=KILLS > 1)
        program.see(r"\d+ datasets trained, and no other followed", patience=(1 + KILLS) * PATIENCE)
        assert program.finish() == 0, program.text
    records = stream.written * RECORDS
    kept = position(tmp_path)
    assert (kept["followed"], kept["records"]) == (stream.written, records)
    examples = read_report(tmp_path / "job")["examples"]
    assert (examples["trained"], examples["skipped"]) == (records, 0)
    data = manifest.read(str(stream.directory / "000"))
    counted = trained(data, TASK, tmp_path / "job", epoch=stream.written)
    assert counted[:records].min() >= 1, json.dumps(examples)
    assert counted.sum() - records <= examples["repeated"]
    wait_until(lambda: (served.counts() == counted).all())
