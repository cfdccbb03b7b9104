"""The batch script trains, under stand-ins for Slurm's commands."""

import contextlib
import io
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest
from cluster_process import PATIENCE, ROOT, read_report
from datasets_on_disk import Datasets

from cloud import submit
from tests.cloud.slurm import stand_in

pytestmark = pytest.mark.slow


def first_of_free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody has now, below those given to anybody."""
    for first in range(21000 + os.getpid() % 1000 * 10, 32000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("", port))
            return first
    raise AssertionError("no free ports")


def test_a_batch_script_trains(datasets: Datasets, tmp_path: pathlib.Path) -> None:
    job_dir = tmp_path / "job"
    own = ["--target=slurm", "--workers=2", "--ps=2", "--evaluator", f"--python={sys.executable}"]
    own += [
        f"--first_port={first_of_free_ports(6)}",
        "--dry_run",
        "--",
        "--config=configs/smoke.py",
    ]
    data = [f"--data.train={datasets.two_shards}", f"--data.eval={datasets.eval}"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert submit.main(["submit", *own, *data, f"--job_dir={job_dir}"]) == 0
    script = tmp_path / "job.sh"
    script.write_text(printed.getvalue())
    stand_in.install(tmp_path)
    environ = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[1-2]",
    }
    with subprocess.Popen(
        ["bash", script],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            text, _ = process.communicate(timeout=PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
    logs = {path.name: path.read_text() for path in tmp_path.glob("smoke-7-*.log")}
    assert process.returncode == 0, f"{text}\n{logs}"
    assert re.search(r"running as chief on Slurm\n", text)
    assert "running as worker 1 of 2 on Slurm\n" in logs["smoke-7-worker-1.log"]
    assert "127.0.0.3:" in logs["smoke-7-ps-1.log"]
    report = read_report(job_dir)
    assert (report["status"], report["cluster"]) == ("finished", {"workers": 2, "ps": 2})
    assert (report["examples"]["trained"], report["examples"]["skipped"]) == (2 * 151, 0)
    assert report["evaluations"][-1]["epoch"] == 2
