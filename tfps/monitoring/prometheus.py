"""The figures of a run for Prometheus, served over HTTP.

Names follow Prometheus's conventions: base units, `_total` for what only grows, points in time as
`_timestamp_seconds`. Where a run goes back to a checkpoint its counters do too, which Prometheus
takes for a restart. Nothing is served that tells of paths, data or errors.
"""

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

import tfps
from tfps.errors import UserError
from tfps.job_dir.task_files import TaskUsage
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.events import (
    LEASE_SECONDS,
    CheckpointSaved,
    Evaluated,
    LeaseTimes,
    RunBegan,
    RunEvent,
    Sampled,
    TaskLost,
    TasksMeasured,
    TrainingBegan,
)

_log = logging.getLogger(__name__)
_STALENESS_BOUNDS = (0, 1, 2, 4, 8, 16, 32)
_Event = TypeVar("_Event", bound=RunEvent)
_Values = Mapping[Any, float]  # by the values of the labels, a tuple of text


class RunMetrics(Collector):
    """Keeps the figures of what happens, and gives them to Prometheus when it asks."""

    name = "the metrics"

    def __init__(self, states: Callable[[], Mapping[TaskName, str]]):
        self._states = states
        self._lock = threading.Lock()
        self._last: dict[type[RunEvent], RunEvent] = {}  # of each kind
        self._loss: float | None = None
        self._judged: Mapping[str, float] = {}
        self._usages: dict[str, TaskUsage] = {}
        self._lost: Counter[str] = Counter()
        self._went_back = 0

    def tell(self, event: RunEvent) -> None:
        with self._lock:
            match event:
                case TrainingBegan():
                    self._went_back += Sampled in self._last
                    event = Sampled(
                        at=event.at,
                        epoch=event.epoch,
                        examples=event.examples,
                        steps=event.steps,
                        loss=None,
                        examples_per_second=0.0,
                    )
                case Sampled():
                    self._loss = self._loss if event.loss is None else event.loss
                    self._judged = event.judged or self._judged
                case TasksMeasured():
                    self._usages |= event.tasks
                case TaskLost():
                    self._lost[TaskName.parse(event.task).job] += 1
            self._last[type(event)] = event

    def flush(self) -> None:
        """Nothing is to be written."""

    def _newest(self, kind: type[_Event]) -> _Event | None:
        found = self._last.get(kind)
        return found if isinstance(found, kind) else None

    def collect(self) -> Iterable[Metric]:
        """The figures as they are now, as prometheus_client asks for them."""
        states = Counter((task.job, state) for task, state in self._states().items())
        with self._lock:
            return [
                *self._of_run(),
                *self._of_training(),
                *self._of_workers(),
                *self._of_checkpoints(),
                *self._of_tasks(states),
            ]

    def _of_run(self) -> Iterator[Metric]:
        if began := self._newest(RunBegan):
            labels = {"config": began.config, "mode": began.mode, "tfps": tfps.__version__}
            yield InfoMetricFamily("tfps_run", "What runs.", value=labels)
            rows = {(table.name,): table.rows for table in began.tables}
            yield _gauge("table_rows", "Rows of a table.", rows, ("table",))
            text = "Bytes of a table on all ps together, slots included."
            sizes = {(table.name,): table.bytes for table in began.tables}
            yield _gauge("table_bytes", text, sizes, ("table",))

    def _of_training(self) -> Iterator[Metric]:
        if sample := self._newest(Sampled):
            yield _counter("examples_trained", "Records trained.", {(): sample.examples})
            text = "Records that may have been trained twice."
            yield _counter("examples_repeated", text, {(): sample.repeated})
            text = "How often a bad record was passed over."
            yield _counter("examples_bad", text, {(): sample.bad})
            yield _counter("updates", "Updates of the parameters.", {(): sample.steps})
            yield _gauge("epoch", "The epoch being trained, from 0.", {(): sample.epoch})
            text = "Records trained per second, since the last sample."
            yield _gauge("examples_per_second", text, {(): sample.examples_per_second})
        if self._judged:
            text = "Of records as they were predicted before they were trained."
            values = {(name,): value for name, value in self._judged.items()}
            yield _gauge("progressive", text, values, ("metric",))
        if self._loss is not None:
            text = "Mean loss of the records trained since the last sample."
            yield _gauge("loss", text, {(): self._loss})
        if evaluated := self._newest(Evaluated):
            values = {(name,): value for name, value in evaluated.metrics.items()}
            yield _gauge("evaluation", "The last evaluation.", values, ("metric",))

    def _of_workers(self) -> Iterator[Metric]:
        sample = self._newest(Sampled)
        workers = dict(enumerate(sample.workers)) if sample else {}
        label = ("worker",)
        for name, text, field in (
            ("worker_leases", "Leases that a worker has ended.", "leases"),
            ("worker_records", "Records of the leases that a worker has ended.", "records"),
            ("worker_busy_seconds", "Time in which a worker trained leases.", "seconds"),
            ("worker_idle_seconds", "Time in which a worker waited for one.", "idle_seconds"),
        ):
            values = {(str(index),): getattr(share, field) for index, share in workers.items()}
            yield _counter(name, text, values, label)
        if sample and sample.leases:
            yield _lease_seconds(sample.leases)

    def _of_checkpoints(self) -> Iterator[Metric]:
        saved = self._newest(CheckpointSaved)
        if not saved:
            return
        yield _counter("checkpoints", "Checkpoints saved.", {(): saved.saves.saved})
        text = "When the last checkpoint was committed."
        yield _gauge("checkpoint_timestamp_seconds", text, {(): saved.at})
        yield _gauge("checkpoint_bytes", "Of the last checkpoint.", {(): saved.saves.bytes})
        text = "Time in which checkpoints were written."
        yield _counter("checkpoint_write_seconds", text, {(): saved.saves.write_seconds})
        text = "Time in which no worker might train because of checkpoints."
        yield _counter("checkpoint_stopped_seconds", text, {(): saved.saves.stopped_seconds})
        text = "Rows of a large table touched since the full checkpoint before the last save."
        touched = {(table,): count for table, count in saved.saves.touched_by_table.items()}
        yield _gauge("table_touched_rows", text, touched, ("table",))
        yield _staleness(saved.staleness.histogram)

    def _of_tasks(self, states: Mapping[tuple[str, str], int]) -> Iterator[Metric]:
        yield _gauge("tasks", "Tasks by their state.", states, ("role", "state"))
        lost = {(job,): count for job, count in self._lost.items()}
        yield _counter("tasks_lost", "How often a task was lost.", lost, ("role",))
        text = "How often the run went back to its last checkpoint."
        yield _counter("recoveries", text, {(): self._went_back})
        label = ("task",)
        for make, name, text, field in (
            (_gauge, "task_memory_bytes", "Memory of a task in RAM.", "memory_bytes"),
            (_counter, "task_cpu_seconds", "CPU time of a task.", "cpu_seconds"),
            (_counter, "task_sent_bytes", "Bytes that a task sent to others.", "sent_bytes"),
            (
                _counter,
                "task_received_bytes",
                "Bytes that a task received from others.",
                "received_bytes",
            ),
        ):
            values = {(task,): getattr(usage, field) for task, usage in self._usages.items()}
            yield make(name, text, values, label)


class MetricsServer:
    """Answers Prometheus at an address of this machine, in threads of its own."""

    def __init__(self, metrics: RunMetrics, port: int, address: str):
        """Begins to answer; `port` 0 is any that is free."""
        registry = CollectorRegistry()
        registry.register(metrics)
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except OSError as error:
            raise UserError(
                f"--metrics_port={port}: nothing can be served at {address} "
                f"({error.strerror or error}); name another port, or another --metrics_address"
            ) from None
        self.port: int = self._server.server_port
        _log.info("figures for Prometheus: http://%s:%d/metrics", address, self.port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _counter(name: str, text: str, values: _Values, labels: tuple[str, ...] = ()) -> Metric:
    return _with_values(CounterMetricFamily(f"tfps_{name}", text, labels=labels), values)


def _gauge(name: str, text: str, values: _Values, labels: tuple[str, ...] = ()) -> Metric:
    return _with_values(GaugeMetricFamily(f"tfps_{name}", text, labels=labels), values)


def _with_values(family: CounterMetricFamily | GaugeMetricFamily, values: _Values) -> Metric:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _lease_seconds(leases: LeaseTimes) -> Metric:
    """How many leases took at most so long."""
    counts = list(itertools.accumulate(leases.counts))
    bounds = [*map(str, LEASE_SECONDS), "+Inf"]
    buckets = [(bound, float(count)) for bound, count in zip(bounds, counts, strict=True)]
    family = HistogramMetricFamily("tfps_lease_seconds", "How long leases took.")
    family.add_metric([], buckets, leases.seconds)
    return family


def _staleness(histogram: list[int]) -> Metric:
    """How many updates had at most so many others between their pull and their push."""
    text = "Other updates between the pull and the push of one, as of the last checkpoint."
    buckets = [
        (str(float(bound)), float(sum(histogram[: bound + 1]))) for bound in _STALENESS_BOUNDS
    ]
    buckets.append(("+Inf", float(sum(histogram))))
    total = sum(staleness * count for staleness, count in enumerate(histogram))
    family = HistogramMetricFamily("tfps_staleness", text)
    family.add_metric([], buckets, total)
    return family
