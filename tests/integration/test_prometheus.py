"""A real Prometheus scrapes a running cluster."""

import contextlib
import json
import pathlib
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest
from cluster_process import PATIENCE, local_cluster, read_report, trainer_flags

from tests.project import ROOT
from tests.training_fixtures import dataset

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
DOCUMENTED = re.findall(
    r"^\| (`tfps_.*?) \|", (ROOT / "docs/monitoring.md").read_text(), re.MULTILINE
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="needs Prometheus: apt-get install prometheus"),
]


class Scraper:
    """A Prometheus that asks an address twice a second."""

    def __init__(self, directory: pathlib.Path, target: str):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._at = f"127.0.0.1:{free.getsockname()[1]}"
        config = directory / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 500ms}\n"
            "scrape_configs: [{job_name: tfps, static_configs: [{targets: ['" + target + "']}]}]\n"
        )
        assert PROMETHEUS
        self.process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={config}",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={self._at}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, query: str) -> list[dict]:
        """What Prometheus answers; nothing while it does not yet."""
        url = f"http://{self._at}/api/v1/query?query={urllib.parse.quote(query)}"
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                result: list[dict] = json.loads(answer.read())["data"]["result"]
            return result
        return []

    def wait_for(self, query: str) -> list[dict]:
        """Asks until there is an answer."""
        deadline = time.monotonic() + PATIENCE
        while not (found := self.ask(query)):
            assert time.monotonic() < deadline, f"no answer to {query}"
            time.sleep(0.2)
        return found


@contextlib.contextmanager
def scraping(directory: pathlib.Path, target: str) -> Iterator[Scraper]:
    scraper = Scraper(directory, target)
    try:
        yield scraper
    finally:
        scraper.process.kill()
        scraper.process.wait()


def names_of_the_page() -> set[str]:
    """The metrics that docs/monitoring.md has, of which some are told as endings of the first."""
    found = set()
    for cell in DOCUMENTED:
        first, *others = re.findall(r"`(.*?)`", cell)
        found.add(first)
        for other in others:
            stem = first.removesuffix("_total").rpartition("_")[0]
            found.add(other.replace("…", stem) if "…" in other else other)
    return found


def total(found: list[dict]) -> float:
    return sum(float(each["value"][1]) for each in found)


def test_all_metrics_are_scraped_and_counters_end_as_in_the_report(tmp_path: pathlib.Path) -> None:
    data = dataset(tmp_path / "train", records=3000, shards=5)
    flags = trainer_flags(
        data.directory,
        tmp_path / "job",
        *("--train.epochs=30", "--train.batch_size=16", "--metrics_port=0"),
        *("--sample_seconds=0.5", "--train.checkpoint_seconds=1"),
        "--task.dim=2048",  # so large that it is kept which rows were touched
        eval_data=data.directory,
    )
    with local_cluster(2, 2, flags) as program:
        url = program.see(r"figures for Prometheus: (http://([^/]+)/metrics)")
        with scraping(tmp_path, url[2]) as scraper:
            program.see(r"\[chief\] .*evaluation after epoch 1")
            program.tasks()["worker 1"].kill()
            program.see("worker 1 is back after")
            scraper.wait_for('tfps_tasks_lost_total{role="worker"} == 1')
            with urllib.request.urlopen(url[1], timeout=PATIENCE) as answer:
                text = answer.read()
            checked = subprocess.run(
                [str(PROMTOOL), "check", "metrics"], input=text, capture_output=True, check=False
            )
            assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
            assert program.finish() == 0, program.text
            report = read_report(tmp_path / "job")
            seen = {
                each["metric"]["__name__"]
                for each in scraper.wait_for('last_over_time({__name__=~"tfps_.*"}[10m])')
            }
            for name in names_of_the_page():
                assert {name, f"{name}_bucket"} & seen, name
            for metric, value in {
                "tfps_examples_trained_total": report["examples"]["trained"],
                "tfps_examples_repeated_total": report["examples"]["repeated"],
                "tfps_updates_total": report["steps"],
                "tfps_tasks_lost_total": sum(report["failures_by_job"].values()),
                "tfps_checkpoints_total": report["checkpoints"]["saved"],
            }.items():
                assert total(scraper.ask(f"last_over_time({metric}[10m])")) == value, metric
            touched = scraper.ask("last_over_time(tfps_table_touched_rows[10m])")
            by_table = {each["metric"]["table"]: float(each["value"][1]) for each in touched}
            assert by_table == report["checkpoints"]["touched_by_table"]
