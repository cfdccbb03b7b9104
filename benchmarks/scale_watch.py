"""What it costs a chief to watch its tasks, and what telling them their cluster takes.

    python -m benchmarks.scale_watch [TASKS …] [--tree=DIR]

Tasks are servers of the loopback interface that answer signs of life (`answering_servers`). The
process that is measured watches them as a chief does, with one more connection to each, as
TensorFlow's, and has a second process break those to silent tasks. `--tree` names the directory of
another version of the project to measure.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psutil

_ROOT = pathlib.Path(__file__).parents[1]
_TASKS = (10, 100, 1000)
_SETTLE_SECONDS, _SECONDS = 8.0, 10.0
_LONG_NAME = "recommendations-ranking-weekly-retrain-1"
# Loaded by every Python process that is measured: all names mean this machine.
_COUNT_LOOKUPS = """
import os, socket
real = socket.getaddrinfo
log = os.open(os.environ["LOOKUPS"], os.O_WRONLY | os.O_APPEND)
def count(host, *args, **kwargs):
    if not host.endswith(".job"):
        return real(host, *args, **kwargs)
    os.write(log, b".")
    return real("127.0.0.1", *args, **kwargs)
socket.getaddrinfo = count
"""
_WATCH = """
import inspect, logging, socket, sys, time
from tfps.cluster.connection_guard import ConnectionGuard
from tfps.cluster.monitor import TaskMonitor
logging.disable(logging.CRITICAL)
addresses = {f"worker {i}": address for i, address in enumerate(sys.stdin.read().split())}
kept = [socket.create_connection(("127.0.0.1", int(at.rsplit(":", 1)[1]))) for at in
        addresses.values()]
guard = ConnectionGuard(addresses)
if "lookout" in inspect.signature(TaskMonitor).parameters:
    TaskMonitor(addresses, guard).start()
else:  # where both asked for themselves
    TaskMonitor(addresses).start()
    guard.start()
print("begun", flush=True)
time.sleep(3600)
"""
_TELL = """
import json, sys
from cloud.job_spec import JobSpec
from cloud.kubernetes.jobset import jobset
from cloud.role import Role
name, tasks = sys.argv[1], int(sys.argv[2])
ps = max(1, tasks // 11)
roles = (Role("chief"), Role("worker", tasks - ps), Role("ps", ps))
made = jobset(JobSpec(name, ("--config=c.py", "--job_dir=gs://b/x"), roles, image="i"))
pod = made["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
environment = {each["name"]: each.get("value", "") for each in pod["containers"][0]["env"]}
print(len(environment["TF_CONFIG"]), len(json.dumps(made)))
"""


def rows(tasks: Sequence[int], tree: pathlib.Path = _ROOT) -> list[dict[str, Any]]:
    """Measures.

    Args:
        tasks: Numbers of tasks.
        tree: Directory of the version that is measured.

    Returns:
        By row: `what` it is, its `unit`, and `by_tasks`, a dict of numbers.
    """
    measured = {count: {**_watching(count, tree), **_telling(count, tree)} for count in tasks}
    return [
        {
            "what": what,
            "unit": unit,
            "by_tasks": {n: each[what, unit] for n, each in measured.items()},
        }
        for what, unit in next(iter(measured.values()))
    ]


def _watching(tasks: int, tree: pathlib.Path) -> dict[tuple[str, str], float]:
    with _servers(tasks) as addresses, tempfile.TemporaryDirectory() as own:
        pathlib.Path(own, "sitecustomize.py").write_text(_COUNT_LOOKUPS)
        lookups = pathlib.Path(own, "lookups")
        lookups.touch()
        environ = {**os.environ, "PYTHONPATH": f"{own}:{tree}", "LOOKUPS": str(lookups)}
        with _running([sys.executable, "-c", _WATCH], cwd=tree, env=environ) as process:
            assert process.stdin
            assert process.stdout
            process.stdin.write("\n".join(_named(at) for at in addresses))
            process.stdin.close()
            assert process.stdout.readline() == "begun\n"
            time.sleep(_SETTLE_SECONDS)
            family = _family(process.pid)
            before, asked = [_cpu(each) for each in family], lookups.stat().st_size
            began = time.monotonic()
            time.sleep(_SECONDS)
            seconds = time.monotonic() - began
            spent = [(_cpu(each) - had) / seconds for each, had in zip(family, before, strict=True)]
            return {
                ("lookups of names by a chief while all tasks answer", "1/s"): (
                    (lookups.stat().st_size - asked) / seconds
                ),
                ("lookups of names by a chief until then", "in all"): asked,
                ("watching, in the chief's process", "CPU ms/s"): 1000 * spent[0],
                ("watching, in its second process", "CPU ms/s"): 1000 * sum(spent[1:]),
                ("threads that watch, in both", "threads"): sum(
                    each.num_threads() for each in family
                ),
            }


def _telling(tasks: int, tree: pathlib.Path) -> dict[tuple[str, str], float]:
    said = subprocess.run(
        [sys.executable, "-c", _TELL, _LONG_NAME, str(tasks)],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    )
    variable, manifest = map(int, said.stdout.split())
    return {
        ("TF_CONFIG of a task of a JobSet, name of 40 letters", "bytes"): variable,
        ("the JobSet", "bytes"): manifest,
    }


@contextlib.contextmanager
def _servers(count: int) -> Iterator[list[str]]:
    command = [sys.executable, "-m", "benchmarks.answering_servers", str(count)]
    with _running(command, cwd=_ROOT) as process:
        assert process.stdout
        yield [process.stdout.readline().strip() for _ in range(count)]


@contextlib.contextmanager
def _running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def _named(address: str) -> str:
    """An address of this machine under a host name of its own."""
    port = address.rsplit(":", 1)[1]
    return f"criteo-worker-{port}-0.job:{port}"


def _family(pid: int) -> list[psutil.Process]:
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main(argv: Sequence[str]) -> None:
    """Prints the table.

    Args:
        argv: Program name, numbers of tasks, `--tree=DIR`.
    """
    trees = [each.removeprefix("--tree=") for each in argv[1:] if each.startswith("--tree=")]
    tasks = [int(each) for each in argv[1:] if not each.startswith("--")] or list(_TASKS)
    found = rows(tasks, pathlib.Path(trees[-1]).absolute() if trees else _ROOT)
    print(f"| what | unit | {' | '.join(map(str, tasks))} |")
    print("|---|---|" + "---|" * len(tasks))
    for row in found:
        numbers = " | ".join(f"{each:,.4g}" for each in row["by_tasks"].values())
        print(f"| {row['what']} | {row['unit']} | {numbers} |")


if __name__ == "__main__":
    main(sys.argv)
