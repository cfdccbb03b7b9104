"""What Prometheus is told of a run, over HTTP, as its own parser reads it."""

import json
import pathlib
import re
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

import tfps
from tfps.errors import UserError
from tfps.job_dir.report import SaveCounts, StalenessCounts, WorkerShare
from tfps.job_dir.task_files import TaskUsage
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.events import (
    CheckpointSaved,
    Evaluated,
    LeaseTimes,
    RunBegan,
    Sampled,
    TableSize,
    TaskLost,
    TasksMeasured,
    TrainingBegan,
)
from tfps.monitoring.prometheus import MetricsServer, RunMetrics

DOCS = pathlib.Path(__file__).parents[2] / "docs"
ENDINGS = {  # written as `…_bad_total` behind the first of their kind
    "tfps_examples_repeated",
    "tfps_examples_bad",
    "tfps_worker_leases",
    "tfps_worker_busy_seconds",
    "tfps_worker_idle_seconds",
    "tfps_checkpoint_stopped_seconds",
}
STATES = {TaskName("ps", 0): "up", TaskName("worker", 0): "up", TaskName("worker", 1): "lost"}
TABLES = (TableSize("user", 1000, 16, 128_000), TableSize("item", 50, 16, 6400))
EVENTS = [
    RunBegan(at=1.0, config="smoke", mode="async", workers=2, ps=1, tables=TABLES),
    TrainingBegan(at=2.0, checkpoint=None, epoch=0, examples=0, steps=0),
    Sampled(
        at=3.0,
        epoch=1,
        examples=100,
        steps=10,
        loss=0.5,
        examples_per_second=9.0,
        repeated=2,
        bad=1,
        workers=(WorkerShare(3, 60, 1.5, 0.5), WorkerShare(2, 40, 1.0, 0.25)),
        leases=LeaseTimes().with_another(0.3).with_another(0.5).with_another(1000.0),
        judged={"auc": 0.75},
    ),
    CheckpointSaved(
        at=4.0,
        name="c",
        examples=100,
        steps=10,
        saves=SaveCounts(
            saved=2,
            bytes=900,
            stopped_seconds=0.5,
            write_seconds=1.5,
            touched_rows=7,
            touched_by_table={"user": 7},
        ),
        staleness=StalenessCounts(1.0, [5, 3, 2]),
    ),
    TasksMeasured(at=5.0, tasks={"ps 0": TaskUsage(4.5, 1000, 2.5, 70, 80)}),
    TaskLost(at=6.0, task="worker 1", what="gone"),
    Evaluated(at=7.0, epoch=1, steps=10, metrics={"loss": 0.4, "auc": 0.9}, has_ended_epoch=True),
]


@pytest.fixture(name="metrics")
def metrics_fixture():
    return RunMetrics(lambda: STATES)


@pytest.fixture(name="ask")
def ask_fixture(metrics):
    """Asks as Prometheus does; returns the families by name."""
    server = MetricsServer(metrics, 0, "127.0.0.1")

    def ask():
        url = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return {x.name: x for x in text_string_to_metric_families(answer.read().decode())}

    yield ask
    server.close()


def values(families):
    """Every value by its name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }


def test_a_run_that_has_just_begun_has_its_tasks_alone(ask):
    found = values(ask())
    assert found[("tfps_tasks", "worker", "lost")] == 1
    assert ("tfps_loss",) not in found


def test_all_figures_are_those_of_the_run(metrics, ask):
    for event in EVENTS:
        metrics.tell(event)
    found = values(ask())
    assert found[("tfps_run_info", "smoke", "async", tfps.__version__)] == 1
    assert {name: value for (name, *labels), value in found.items() if not labels} == {
        "tfps_examples_trained_total": 100,
        "tfps_examples_repeated_total": 2,
        "tfps_examples_bad_total": 1,
        "tfps_updates_total": 10,
        "tfps_epoch": 1,
        "tfps_examples_per_second": 9.0,
        "tfps_loss": 0.5,
        "tfps_checkpoints_total": 2,
        "tfps_checkpoint_timestamp_seconds": 4.0,
        "tfps_checkpoint_bytes": 900,
        "tfps_checkpoint_write_seconds_total": 1.5,
        "tfps_checkpoint_stopped_seconds_total": 0.5,
        "tfps_lease_seconds_count": 3,
        "tfps_lease_seconds_sum": 1000.8,
        "tfps_staleness_count": 10,
        "tfps_staleness_sum": 7,
        "tfps_recoveries_total": 0,
    }
    assert found[("tfps_progressive", "auc")] == 0.75
    assert found[("tfps_table_rows", "item")] == 50
    assert found[("tfps_table_bytes", "user")] == 128_000
    assert found[("tfps_table_touched_rows", "user")] == 7
    assert found[("tfps_evaluation", "auc")] == 0.9
    assert found[("tfps_worker_idle_seconds_total", "1")] == 0.25
    by_seconds = [("0.1", 0), ("0.3", 1), ("1.0", 2), ("100.0", 2), ("+Inf", 3)]
    assert [found[("tfps_lease_seconds_bucket", x)] for x, _ in by_seconds] == [
        count for _, count in by_seconds
    ]
    assert found[("tfps_staleness_bucket", "1.0")] == 8
    assert found[("tfps_staleness_bucket", "+Inf")] == 10
    assert found[("tfps_tasks_lost_total", "worker")] == 1
    assert found[("tfps_task_memory_bytes", "ps 0")] == 1000
    assert found[("tfps_task_cpu_seconds_total", "ps 0")] == 2.5
    assert found[("tfps_task_sent_bytes_total", "ps 0")] == 70
    assert found[("tfps_task_received_bytes_total", "ps 0")] == 80


def test_counters_go_back_with_the_run(metrics, ask):
    for event in EVENTS:
        metrics.tell(event)
    metrics.tell(TrainingBegan(at=8.0, checkpoint="c", epoch=0, examples=50, steps=5))
    found = values(ask())
    assert found[("tfps_examples_trained_total",)] == 50
    assert found[("tfps_recoveries_total",)] == 1


def test_names_and_texts_are_as_prometheus_wants_them(metrics, ask):
    for event in EVENTS:
        metrics.tell(event)
    for name, family in ask().items():
        assert re.fullmatch("tfps(_[a-z]+)+", name)
        assert family.documentation.endswith(".")
        assert not re.search("milli|minutes|hours|kilo|mega|ratio_percent", name)
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)


def test_the_dashboard_and_the_page_name_what_is_served(metrics, ask):
    for event in EVENTS:
        metrics.tell(event)
    families = ask()
    served = {sample.name for family in families.values() for sample in family.samples}
    board = json.loads((DOCS / "grafana.json").read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    names = set(re.findall(r"tfps_\w+", " ".join(shown)))
    assert len(board["panels"]) > 10
    assert names <= served
    labels = {
        (sample.name, label)
        for x in families.values()
        for sample in x.samples
        for label in sample.labels
    }
    for panel in board["panels"]:
        for target in panel["targets"]:
            [name, *_] = re.findall(r"tfps_\w+", target["expr"])
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert (name, label) in labels
    page = (DOCS / "monitoring.md").read_text()
    assert {name for name in families if f"`{name}" not in page and name not in ENDINGS} == set()


def test_a_port_that_is_taken_is_refused(metrics):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--metrics_port={port}: .*in use.*another port"):
            MetricsServer(metrics, port, "127.0.0.1")
