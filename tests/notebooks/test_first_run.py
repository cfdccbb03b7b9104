"""`notebooks/first_run.ipynb`: a cluster that is started, and interrupted, from a notebook."""

import json
import os
import re
import signal
import threading

import nbclient
import psutil
import pytest

from tests.integration.cluster_process import assert_gone, checkpoints
from tests.notebooks.running import (
    cells_of,
    client_of,
    execute,
    pictures_of,
    read,
    set_parameters,
    text_of,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SMALL = {"RECORDS": 8000, "EPOCHS": 2, "SETTINGS": ["--task.rows_per_table=500"]}


def test_it_trains_evaluates_and_predicts_on_a_cluster(tmp_path):
    cells = execute("first_run", tmp_path, SMALL)
    lines = text_of(cells["train"])
    for part in (
        *("[ps 0]", "[worker 1]", "connected to 2 workers and 1 ps", "evaluation after epoch 2"),
        *("epoch 2 of 2 trained: 16,000 records", "exported the model"),
    ):
        assert part in lines
    assert "\x1b" not in text_of(cells["generate"]) + lines
    report = json.loads((tmp_path / "runs/first_run/job/report.json").read_text())
    told = re.search(r"^AUC +([\d.]+) \(the planted", text_of(cells["report"]), re.MULTILINE)
    assert float(told[1]) == pytest.approx(report["metrics"]["auc"], abs=5e-5)
    assert len(pictures_of(cells["curves"])) == 1
    predicted = re.findall(r"^label ([01]), predicted 0\.\d{4}$", text_of(cells["predict"]), re.M)
    assert len(predicted) == 5


def test_interrupting_the_cell_saves_a_checkpoint_and_ends_every_task(tmp_path):
    notebook = read("first_run")
    set_parameters(notebook, {**SMALL, "EPOCHS": 1000})
    client = client_of(notebook, tmp_path)
    tasks, has_trained = [], threading.Event()

    def interrupt_once_it_trains(cell, cell_index, **_):
        """Interrupts the kernel, all its group, as Jupyter does; once a line tells of an epoch."""

        def follow():
            while not re.search(r"epoch 2 of 1000 trained", text_of(cell)):
                if client_is_done.wait(0.1):
                    return
            kernel = psutil.Process(client.km.provisioner.pid)
            tasks.extend(kernel.children(recursive=True))
            has_trained.set()
            os.killpg(client.km.provisioner.pgid, signal.SIGINT)

        if cell.get("id") == "train":
            threading.Thread(target=follow, daemon=True).start()

    client_is_done = threading.Event()
    client.on_cell_execute = interrupt_once_it_trains
    try:
        with pytest.raises(nbclient.exceptions.CellExecutionError, match="KeyboardInterrupt"):
            client.execute()
    finally:
        client_is_done.set()
    assert has_trained.is_set()
    lines = text_of(cells_of(notebook)["train"])
    assert lines.count("[launcher] SIGINT: passed on to the chief") == 1
    assert "again: killing" not in lines
    assert re.search(r"\[chief\] .*(interrupted|saved)", lines)
    assert len(tasks) >= 5  # the launcher, and four tasks
    assert_gone(tasks)
    job = tmp_path / "runs/first_run/job"
    assert json.loads((job / "report.json").read_text())["status"] == "interrupted"
    assert checkpoints(job)
