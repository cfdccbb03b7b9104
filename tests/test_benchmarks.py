"""The benchmarks refuse what they cannot use, keep and render results; a real run is slow."""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import socket
import subprocess
import sys
import threading

import keras
import numpy as np
import psutil
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from benchmarks import cases, checkpoint, drift, input, models, systems, table
from benchmarks.cases import SYSTEMS, Case
from benchmarks.measurement import Failed, Window, measure
from benchmarks.peers import start
from benchmarks.peers.start import free_ports
from benchmarks.peers.wire import connected
from benchmarks.results import Results, Spread
from benchmarks.systems import System
from benchmarks.unwatched_task import WATCHING
from tests.loaded import client
from tests.project import ROOT
from tfps.experiment import overrides
from tfps.job_dir import JobDir
from tfps.job_dir.task_files import start_reporting
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.recorder import RunRecorder

SETTINGS = {"machine": {"cores": 2, "processor": "a processor"}, "seconds": 10.0}


def figures(speed, cpu=10.0, chief=0.01):
    return {
        "examples_per_second": speed,
        "cpu_seconds_per_million_examples": cpu,
        "loopback_bytes_per_example": 2000,
        "chief_share": chief,
        "cpu_seconds": {"chief-0": 1.0, "worker-0": 9.0},
        "peak_megabytes": {"chief": 500, "worker": round(speed)},
        "others_cores": 0.02,
        "stolen_cores": 0.01,
        "commit": "0123456789",
    }


@pytest.fixture
def path(tmp_path):
    """Three runs of two systems on the base case, and one on larger tables."""
    results = Results(tmp_path / "results.jsonl", Case)
    results.begin(SETTINGS)
    for run, (mine, theirs) in enumerate(((100, 50), (120, 40), (90, 30)), start=1):
        results.add(Case(), "tfps-1ps", run, figures(mine))
        results.add(Case(), "torch-rpc", run, figures(theirs, cpu=20.0))
        results.add(Case(rows=200_000), "tfps-1ps", run, figures(mine * 0.9))
    return tmp_path / "results.jsonl"


def run(module, *args):
    return client.run(f"benchmarks.{module}", *args)


@pytest.mark.parametrize(
    "module",
    [
        *("suite", "peers.start"),
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("input", "storage", "checkpoint")
        ),
    ],
)
def test_a_program_lists_its_flags(module):
    result = run(module, "--help")
    assert result.returncode == 0
    assert "--data" in result.stdout


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--seconds=1", "--seconds=1.0 must be at least 3.0"),
        ("--peer_python=no-such-python", "--peer_python=no-such-python: no such program"),
        ("--systems=tfps", "--systems=tfps: there are tfps-1ps, tfps-2ps"),
        ("--sweep=size", "--sweep=size: there are base, rows, dlrm, batch, models"),
        ("--only=rows=7", "--only=rows=7: no case has that in its name"),
        ("--runs=-1", "--runs=-1 --workers=2: too few"),
    ],
)
def test_a_bad_flag_is_one_message(tmp_path, flag, message):
    result = run("suite", f"--output={tmp_path}/out.jsonl", flag)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {message}")
    assert result.stderr.count("\n") == 1


def test_an_output_in_no_directory(tmp_path):
    result = run("suite", f"--output={tmp_path}/none/out.jsonl")
    assert result.returncode == 2
    assert "there is no directory" in result.stderr


def test_a_case_of_two_sweeps_is_planned_once():
    planned = dict(cases.planned(["rows", "base", "batch"], [], []))
    assert len(planned) == 1 + 2 + 4
    of_other_sweeps = (cases.LAZY, cases.UNWATCHED, cases.KEYS, cases.FEW_ROWS, *cases.NARROW)
    assert planned[Case()] == [x for x in SYSTEMS if x not in of_other_sweeps]
    of_batch = ["tfps-1ps", "tfps-local", "tutorial-tf_keras", "torch-rpc", "torch-rpc-files"]
    assert planned[Case(batch=64)] == [*of_batch, "wire"]


def test_a_name_says_which_flags_are_added(tmp_path):
    flags = argparse.Namespace(workers=2, intra_op_threads=1, inter_op_threads=4, peer_python="x")

    def command(name):
        return list(systems.system(name, Case(), flags, tmp_path, tmp_path).command)

    usual = command("tfps-1ps")
    assert command("tfps-1ps-ahead-bf16") == [
        *usual,
        "--train.pipeline_depth=1",
        "--train.wire_dtype=bfloat16",
    ]
    assert command("tfps-1ps-sgd8") == [*usual, "--mode.name=local_sgd", "--mode.sync_every=8"]
    assert command("torch-ddp-files") == [*command("torch-ddp"), "--input=files"]
    assert command("torchrec-files") == [*command("torchrec"), "--input=files"]


def test_a_peer_s_name_is_that_of_its_program(tmp_path):
    flags = argparse.Namespace(workers=2, intra_op_threads=1, inter_op_threads=4, peer_python="x")
    found = set()
    for name in set(SYSTEMS) - {*cases.TFPS, cases.FIT}:
        program, _, module, peer, *_ = systems.system(
            name, Case(), flags, tmp_path, tmp_path
        ).command
        assert (program, module) == ("x", "benchmarks.peers.start")
        assert (ROOT / f"benchmarks/peers/{peer}.py").exists()
        found.add(peer)
    assert found == set(start.PEERS) - {"torch_one"}  # of GPUs


def test_chains_are_the_dense_layers_of_the_model():
    for name, chains in models.CHAINS.items():
        pairs = [pair for chain in chains for pair in itertools.pairwise(chain)]
        model = models.build(keras, name, 10)
        dense = [each for each in model.layers if isinstance(each, keras.layers.Dense)]
        assert [each.kernel.shape for each in dense] == pairs


def test_only_and_systems_choose():
    (chosen,) = cases.planned(["rows"], ["rows=200000 "], ["mwms-tf_keras", "tfps-2ps"])
    assert chosen == (Case(rows=200_000), ["tfps-2ps", "mwms-tf_keras"])
    of_models = dict(cases.planned(["models"], ["dense"], ["tfps-1ps", "torch-rpc"]))
    assert of_models == {Case("dense_100", rows=0): ["tfps-1ps"]}  # torch-rpc has other models


@pytest.mark.parametrize(
    ("line", "trained"),
    [
        (
            "[chief] 12:00:00 epoch 1/1: 1,234,567 of 8,000,000 records, 90,000 examples/s, "
            "loss 0.4321\n",
            (1234567, 0.4321),
        ),
        ("TRAINED 512 loss 0.6931\n", (512, 0.6931)),
        ("[chief] 12:00:00 connected to 2 workers and 1 ps\n", None),
    ],
)
def test_progress_lines(line, trained):
    assert systems.progress(line) == trained


class Watched:
    """Watches a system."""

    has_begun = False

    def begin(self, tasks):
        self.has_begun = list(tasks) != []

    def end(self, process, tasks):
        assert psutil.Process(process).status() != psutil.STATUS_ZOMBIE  # it still trains
        return {"tasks": list(tasks)}


def test_a_window_of_a_process_is_measured_and_the_process_ended(tmp_path):
    program = (
        "import time\n"
        "for step in range(1, 10_000):\n"
        "    print('TRAINED', step * 100, 'loss 0.5', flush=True)\n"
        "    end = time.monotonic() + 0.05\n"
        "    while time.monotonic() < end: pass\n"
    )
    system = System([sys.executable, "-c", program], "chief-0")
    watch = Watched()
    found = measure(system, Window(0.1, 0.5, 30.0), tmp_path / "log", watch)
    assert watch.has_begun
    assert found["tasks"] == ["chief-0"]
    assert found["seconds"] >= 0.5
    assert found["examples"] % 100 == 0
    speed = found["examples"] / found["seconds"]
    assert found["examples_per_second"] == pytest.approx(speed, rel=0.01)
    assert found["chief_share"] == 1.0
    assert found["peak_megabytes"]["chief"] > 1
    assert found["loss"] == 0.5


@pytest.mark.parametrize("program", ["raise SystemExit('broken')", "import time; time.sleep(60)"])
def test_a_system_that_trains_nothing_is_reported(tmp_path, program):
    system = System([sys.executable, "-c", program], "chief-0")
    with pytest.raises(Failed, match=r"no window of 0\.5 s was seen"):
        measure(system, Window(0.1, 0.5, 2.0), tmp_path / "log")


def test_results_are_read_again(path):
    results = Results(path, Case)
    assert results.has(Case(), "tfps-1ps", 3)
    assert not results.has(Case(), "tfps-1ps", 4)
    assert results.spread(Case(), "tfps-1ps", table.SPEED) == Spread(100, 90, 120)
    # Of runs with the same number: 100 / 50, 120 / 40, 90 / 30.
    ratio = results.ratio(table.SPEED, (Case(), "tfps-1ps"), (Case(), "torch-rpc"))
    assert ratio == Spread(3.0, 2.0, 3.0)


def test_a_line_that_was_cut_off_is_left_out(path):
    whole = path.read_text()
    path.write_text(whole + '{"run": 4, "syst')
    assert not Results(path, Case).has(Case(), "tfps-1ps", 4)
    assert path.read_text() == whole


def test_results_of_other_settings_are_refused(path):
    with pytest.raises(Failed, match="has runs with other settings \\(seconds\\)"):
        Results(path, Case).begin({**SETTINGS, "seconds": 20.0})


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "other").write_text(json.dumps({"a": 1}) + "\n")
    with pytest.raises(Failed, match="line 1 is no result of a run"):
        Results(tmp_path / "other", Case)


def test_tables(path):
    text = table.report(Results(path, Case), "tfps-1ps")
    lines = [line.split(" | ") for line in text.splitlines()]
    (peer,) = [line for line in lines if line[0] == "| torch-rpc"]
    assert peer[1:4] == ["3.00 (2.00–3.00)", "0.50 (0.50–0.50)", "40 (30–50)"]  # noqa: RUF001
    assert peer[6:8] == ["1.0%", "chief 500, worker 50"]
    (swept,) = [line for line in lines if line[:2] == ["| tfps-1ps", "examples/s"]]
    assert swept[2:] == ["100", "90 (0.90×) |"]  # noqa: RUF001
    assert "- cores: 2" in text
    assert "worst window: 0.03" in text


def test_the_floor_is_one_process_and_the_wire(path):
    results = Results(path, Case)
    assert table.floor_line(results, Case(), "tfps-1ps") == []
    for run in (1, 3):
        results.add(Case(), "tfps-local", run, figures(10, cpu=4.0 + run))
        results.add(Case(), "wire", run, figures(10, cpu=0.5))
    assert results.floor(Case()) == {1: 5.5, 3: 7.5}
    [line] = table.floor_line(results, Case(), "tfps-1ps")
    assert "6.5 (5.5–7.5) CPU-s per million examples" in line  # noqa: RUF001
    assert "tfps-1ps takes 1.58 (1.33–1.82) times as much" in line  # noqa: RUF001


WIRE_PEER = [sys.executable, "-m", "benchmarks.peers.start", "wire"]
IDS = 52 * 4
VALUES = (52 * 16 + models.build(keras, "embeddings_mlp", 10).count_params() - 26 * 10 * 16) * 4


@pytest.fixture
def two_rows(tmp_path):
    """A dataset whose batches have two distinct rows of each table."""
    (tmp_path / "arrays").mkdir()
    ids = np.tile(np.arange(512)[:, None] % 2, (1, 26))
    np.save(tmp_path / "arrays" / "categoricals.npy", ids)
    return f"--data={tmp_path}"


@contextlib.contextmanager
def wire_task(data, job, port):
    """One task of the floor whose other side is a socket of the test."""
    cluster = {"ps": [f"127.0.0.1:{port}"], "worker": [f"127.0.0.1:{port}"]}
    config = json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})
    process = subprocess.Popen(
        [*WIRE_PEER, data, "--workers=1"],
        cwd=ROOT,
        env=os.environ | {"TF_CONFIG": config},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.communicate()


def received(connection, size):
    """The number of bytes that came in; nothing may follow them for a moment without an answer."""
    connection.settimeout(60.0)
    found = 0
    while found < size and (part := connection.recv(size - found)):
        found += len(part)
    connection.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.recv(1)
    connection.settimeout(60.0)
    return found


def test_a_worker_of_the_floor_sends_a_batch_s_ids_and_gradients(two_rows):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60.0)
        with wire_task(two_rows, "worker", listening.getsockname()[1]):
            connection, _ = listening.accept()
            with connection:
                for _ in range(2):
                    assert received(connection, IDS) == IDS
                    connection.sendall(bytes(VALUES))
                    assert received(connection, VALUES) == VALUES
                    connection.sendall(b"k")


def test_the_ps_of_the_floor_sends_a_batch_s_rows_and_dense_parameters(two_rows):
    [port] = free_ports(1)
    with wire_task(two_rows, "ps", port), connected("127.0.0.1", port) as connection:
        for _ in range(2):
            connection.sendall(bytes(IDS))
            assert received(connection, VALUES) == VALUES
            connection.sendall(bytes(VALUES))
            assert received(connection, 1) == 1


@pytest.mark.slow
def test_a_million_records_cross_bare_sockets(two_rows, tmp_path):
    """What crosses loopback is counted; the window's ends are not those of a step."""
    window = Window(0.1, 2.0, 60.0)
    found = measure(System([*WIRE_PEER, two_rows], "launcher"), window, tmp_path / "log")
    assert found["examples_per_second"] > 0
    assert found["loopback_bytes_per_example"] > 0.5 * (IDS + 2 * VALUES + 1) / 512


def test_reading_is_a_share_of_a_step():
    *_, read, step = input.summary({"read": [2.0, 4.0, 3.0], "step": [20.0, 20.0, 10.0]}).split(
        "\n"
    )
    assert read.split() == ["read", "3.00", "(2.00-4.00)", "333,333", "20.0%"]
    assert step.split()[-1] == "100.0%"


def test_a_pipeline_is_measured():
    assert 0 < input.cpu_seconds_per_million(tf.data.Dataset.range(600).batch(2), 0.01) < 1e6


def test_speed_over_a_save_is_interpolated_between_lines():
    saves = [(3.5, {"write_seconds": 2.0}), (9.0, {"write_seconds": 5.0})]
    run = checkpoint.Run([0.0, 2.0, 4.0, 10.0], [0, 200, 300, 900], saves)
    assert run.trained_at(3.0) == 250
    assert run.speed(1.0, 3.0) == 75
    assert run.speed(4.0, 10.0) == 100
    assert (run.took(0, "write_seconds"), run.took(1, "write_seconds")) == (2.0, 3.0)


def test_pictures(path, tmp_path):
    pytest.importorskip("matplotlib", reason="the benchmarks' extra is not installed")
    output = tmp_path / "docs"
    output.mkdir()
    result = run("report", str(path), f"--output={output}")
    assert result.returncode == 0, result.stderr
    assert (output / "benchmark_rows.png").read_bytes().startswith(b"\x89PNG")
    assert "![benchmark_rows](benchmark_rows.png)" in (output / "benchmarks.md").read_text()


@pytest.mark.parametrize("model", systems.datasets.CONFIGS)
def test_peers_and_tfps_train_the_same_model(model):
    task = overrides.load(str(ROOT / systems.datasets.CONFIGS[model])).task
    if has_tables := hasattr(task, "rows_per_table"):
        task = dataclasses.replace(task, rows_per_table=1000)
    mine, theirs = task.build_model(), models.build(keras, model, 1000 * has_tables)
    shapes = [sorted(tuple(each.shape) for each in one.weights) for one in (mine, theirs)]
    assert shapes[0] == shapes[1]
    assert mine.count_params() == theirs.count_params()


def test_the_threads_that_are_left_out_or_metered_are_those_that_watch(tmp_path):
    recorder = RunRecorder([])
    start_reporting(JobDir(tmp_path), TaskName("worker", 0), seconds=1e6)  # it reports once
    assert set(WATCHING) <= {thread.name for thread in threading.enumerate()}
    recorder.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_short_run(tmp_path):
    result = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.suite", f"--output={tmp_path}/results.jsonl"),
            *(f"--data={tmp_path}/data", "--only=dense", "--sweep=models", "--runs=1"),
            *("--systems=tfps-local,tutorial-keras", "--seconds=3", "--warm_seconds=1"),
        ],
        cwd=ROOT,
        check=False,
    )
    assert result.returncode == 0
    results = Results(tmp_path / "results.jsonl", Case)
    assert results.systems(Case("dense_100", rows=0)) == ["tfps-local", "tutorial-keras"]


def test_what_is_given_the_spread_learns_drifting_clicks_better_and_the_truth_is_best():
    filtered, in_order, aucs = drift.Filter(), drift.InOrder(), []
    for number in range(6):
        columns, truth = drift.clicks(number, 5000)
        predicted = in_order.learn(columns), filtered.learn(columns), truth
        aucs.append([roc_auc_score(columns["clicked"], each) for each in predicted])
    sequential, best, true = np.mean(aucs[2:], axis=0)
    assert 0.55 < sequential < best < true
