"""The job that a platform starts is the job that trains.

Each request is rendered by `cloud.submit`; each replica's command is started as a process with the
environment that the platform is documented to give it, its addresses on this machine. The bucket
is a directory. For Vertex AI see test_vertex_training.py.
"""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import platforms
import pytest
import yaml
from cluster_process import PATIENCE, ROOT, read_report
from datasets_on_disk import Datasets
from platforms import Replica

from cloud import submit
from cloud.local.command import Ports

JOB = ("--workers=2", "--ps=1", "--evaluator", "--machine=type=n2-standard-8", "--image=r/tfps:1")
PLATFORMS = {
    "jobset": (platforms.jobset, "Kubernetes (JobSet)"),
    "tfjob": (platforms.tfjob, "Kubernetes (TFJob)"),
}
ADDRESS = re.compile(r"[a-z0-9.-]+:2222\b")


def rendered(target: str) -> dict[str, Any]:
    """The request that makes the job."""
    arguments = ["--config=configs/smoke.py", "--data.train=gs://bucket/train"]
    arguments += ["--data.eval=gs://bucket/eval", "--job_dir=gs://bucket/run"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        argv = ["submit", f"--target={target}", *JOB, "--dry_run", "--", *arguments]
        assert submit.main(argv) == 0
    *_, job = yaml.safe_load_all(printed.getvalue())
    return job


@contextlib.contextmanager
def started(
    replicas: list[Replica], directory: pathlib.Path
) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Starts replicas with their own environment alone; kills what is left."""
    bucket = str(directory / "bucket")
    with Ports(len(replicas) + 1) as ports, contextlib.ExitStack() as stack:
        *own, beside = ports.numbers  # the last for the worker next to the chief
        local: dict[str, str] = {}

        def here(text: str) -> str:
            free = iter(own[len(local) :])
            for address in ADDRESS.findall(text):
                if address not in local:
                    local[address] = f"127.0.0.1:{next(free)}"
            return ADDRESS.sub(lambda found: local[found[0]], text).replace("gs://bucket", bucket)

        processes = {}
        for replica in replicas:
            environ = {name: here(value) for name, value in replica.environ.items()}
            environ |= {"PATH": os.environ["PATH"], "HOME": str(directory)}
            python, *argv = *map(here, replica.argv), f"--chief_worker_port={beside}"
            assert python == "python"
            log = stack.enter_context((directory / f"{replica.name}.log").open("wb"))
            process = subprocess.Popen(
                [sys.executable, *argv], cwd=ROOT, env=environ, stdout=log, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes[replica.name] = process
        yield processes


@pytest.mark.slow
@pytest.mark.parametrize("target", ["jobset", "tfjob"])
def test_a_rendered_job_trains(target: str, datasets: Datasets, tmp_path: pathlib.Path) -> None:
    replicas_of: Callable[[dict[str, Any]], Iterator[Replica]]
    replicas_of, platform = PLATFORMS[target]
    (tmp_path / "bucket").mkdir()
    for name, data in (("train", datasets.two_shards), ("eval", datasets.eval)):
        (tmp_path / "bucket" / name).symlink_to(data)
    replicas = list(replicas_of(rendered(target)))
    assert len(replicas) == 5
    with started(replicas, tmp_path) as processes:
        codes = {name: process.wait(2 * PATIENCE) for name, process in processes.items()}
    logs = {name: (tmp_path / f"{name}.log").read_text() for name in codes}
    assert set(codes.values()) == {0}, "\n".join(f"{name}: {logs[name]}" for name in logs)
    # What is not JSON is of TensorFlow's native code, which docs/flags.md says stays text.
    lines = {name: log.splitlines() for name, log in logs.items()}
    said = {
        name: [json.loads(line)["message"] for line in some if line.startswith("{")]
        for name, some in lines.items()
    }
    others = [line for some in lines.values() for line in some if not line.startswith("{")]
    assert not [line for line in others if re.search("Traceback|trainer|tfps", line)]
    assert f"running as chief on {platform}" in said["chief 0"]
    assert f"running as worker 1 of 3 on {platform}" in said["worker 1"]
    assert f"running as worker 2 of 3 on {platform}" in said["chief 0"]  # in its container
    assert f"running as evaluator 0 on {platform}" in said["evaluator 0"]

    run = tmp_path / "bucket" / "run"
    report = read_report(run)
    assert (report["status"], report["cluster"]) == ("finished", {"workers": 3, "ps": 1})
    assert report["examples"]["trained"] == 2 * 151
    assert report["examples"]["skipped"] == 0
    assert report["export"] == str(run / "export" / "1")
    assert (run / "export" / "1" / "saved_model.pb").exists()
    assert report["evaluations"][-1]["epoch"] == 2
    assert "the workers do it" not in logs["chief 0"]
