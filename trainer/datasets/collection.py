"""Rows that keep coming become numbered datasets: what `trainer.collect` does."""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import contextlib
import dataclasses
import logging
import math
import posixpath
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from absl import flags

from tfps.data import manifest
from tfps.data.dataset_writer import DatasetWriter
from tfps.data.examples import CountsSum
from tfps.data.manifest import Manifest
from tfps.errors import UserError
from tfps.experiment.experiment import Experiment
from tfps.experiment.task import Task
from tfps.storage import files, objects
from tfps.storage.objects import Use
from trainer.datasets import row_encoding
from trainer.datasets.appearing_files import AppearingFiles
from trainer.datasets.joined_topics import Join, JoinedTopics
from trainer.datasets.kafka_messages import KafkaMessages, is_topic
from trainer.datasets.kafka_topic import KafkaTopic
from trainer.datasets.row_encoding import BadRows, ConfiguredExperiment
from trainer.datasets.row_layout import Block, RowLayout
from trainer.flags import experiment_flags

_log = logging.getLogger(__name__)


class Source(Protocol):
    """Where rows come from, in an order that stays."""

    @property
    def place(self) -> Mapping[str, Any]:
        """Where it goes on behind the rows that were read; JSON-ready."""

    def resume(self, place: Mapping[str, Any]) -> None:
        """Goes on from a place; from the beginning for an empty one."""

    def read(self, rows: int) -> Iterable[Block] | None:
        """Rows that have come, of Kafka so many at most; None if none came in a short while.

        The place is behind all of them, so they belong into one dataset.
        """

    def close(self) -> None:
        """Reads no more."""


@dataclasses.dataclass(frozen=True)
class Sealing:
    """When a dataset is sealed, and in how many shards."""

    seconds: float  # after its first row
    records: int
    shards: int
    max_bad_rows: int = 0


class Collector:
    """Seals one dataset after the other."""

    def __init__(
        self,
        get_experiment: Callable[[], Experiment],
        source: Source,
        output: str,
        sealing: Sealing,
        keep: tuple[str, ...] = (),
    ):
        self._get_experiment = get_experiment
        self._experiment = get_experiment()
        self._source = source
        self._output = output
        self._sealing = sealing
        self._keep = keep

    def run(self, stop: threading.Event) -> None:
        """Seals datasets until it is stopped."""
        number = self._resume()
        while not stop.is_set():
            if self._seal_next(self._directory(number + 1), stop):
                number += 1

    def _resume(self) -> int:
        """Goes on behind the newest dataset; returns its number, 0 for none."""
        number = _newest(self._output)
        if not number:
            self._source.resume({})
            return 0
        directory = self._directory(number)
        sealed = manifest.read(directory, "--output")
        if not sealed.collected:
            raise UserError(
                f"--output={self._output}: {directory} is not of trainer.collect, which could not "
                "tell where to go on; name another directory"
            )
        self._source.resume(sealed.collected)
        _log.info("going on behind %s", directory)
        return number

    def _directory(self, number: int) -> str:
        return posixpath.join(self._output, f"{number:06}")

    def _seal_next(self, directory: str, stop: threading.Event) -> bool:
        """Writes the rows that come into a dataset; False if it was stopped before the first."""
        blocks = self._read(self._sealing.records, stop, math.inf)
        if blocks is None:
            return False
        deadline = time.monotonic() + self._sealing.seconds
        experiment, sealing = self._experiment, self._sealing
        schema, bad, counts = experiment.task.schema(), BadRows(sealing.max_bad_rows), CountsSum()
        opened = DatasetWriter.open(directory, experiment.name, sealing.shards, schema)
        with opened as writer:
            while blocks is not None:
                for block in blocks:
                    self._write(block, writer, bad, counts)
                left = sealing.records - writer.records - bad.count
                blocks = self._read(left, stop, deadline) if left > 0 else None
            sealed = writer.finish(bad.count, counts=counts.total, collected=self._source.place)
        _log.info("%s: %s records%s", directory, f"{sealed.records:,}", _rejected(sealed))
        return True

    def _read(self, rows: int, stop: threading.Event, deadline: float) -> Iterable[Block] | None:
        """What comes next; None if nothing came until it was stopped, or the deadline."""
        while not stop.is_set() and time.monotonic() < deadline:
            if (blocks := self._source.read(rows)) is not None:
                return blocks
        return None

    def _write(self, block: Block, writer: DatasetWriter, bad: BadRows, counts: CountsSum) -> None:
        shards = self._sealing.shards
        encoded = row_encoding.encode(block, self._get_experiment, self._keep, shards)
        encoded.account(self._experiment.task.schema(), bad, counts, _log.warning)
        if encoded.count:
            writer.write_in_turn(encoded.frames)


def _rejected(sealed: Manifest) -> str:
    return f", {sealed.rejected_rows:,} bad rows left out" if sealed.rejected_rows else ""


def _newest(output: str) -> int:
    """The number of the newest dataset in a directory, 0 for none."""
    try:
        found = [name for name in files.names(output) if name.isdecimal()]
    except FileNotFoundError:
        return 0
    for name in sorted(found, key=int, reverse=True):
        if manifest.is_in(posixpath.join(output, name)):
            return int(name)
    return 0


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    stop = threading.Event()
    before = {
        each: signal.signal(each, lambda *_: stop.set()) for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for each, action in before.items():
            signal.signal(each, action)


def run() -> None:
    values = flags.FLAGS
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", force=True)
    logging.getLogger("trainer").setLevel(logging.INFO)
    configured = ConfiguredExperiment(values.config, experiment_flags.fields())
    source = _source(configured().task, tuple(values.keep))
    sealing = Sealing(values.seconds, values.records, values.shards, values.max_bad_rows)
    collector = Collector(configured, source, values.output, sealing, tuple(values.keep))
    with contextlib.closing(source), _stopped_by_signals() as stop:
        collector.run(stop)


def _source(task: Task, keep: tuple[str, ...]) -> Source:
    """The input that flags name."""
    values = flags.FLAGS
    layout, output = RowLayout.of(task, keep), Use("--output", values.output, writes=True)
    if not is_topic(values.input):
        for name in ("kafka_config", "join"):
            if getattr(values, name):
                raise UserError(f"--{name} is for kafka://…, not for --input={values.input}")
        objects.check([Use("--input", values.input), output])
        return AppearingFiles(values.input, layout)
    messages = KafkaMessages.of(values.input, values.kafka_config, 2 if values.join else 1)
    objects.check([output])
    if not values.join:
        return KafkaTopic(messages, layout)
    labels: list[str] = []
    for label in task.labels():
        if label.dtype == "string":
            raise UserError(f"--join: label {label.name!r} is text, and a row without one has 0")
        labels += layout.columns_of(label)
    return JoinedTopics(messages, Join(values.join, values.window_seconds, tuple(labels)), layout)
