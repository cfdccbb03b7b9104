"""A chief watches its tasks without a lookup or a thread for each of them."""

import contextlib
import os
import subprocess
import sys
import time

import psutil
import pytest

from tests.project import ROOT

SETTLE_SECONDS, SECONDS = 8.0, 10.0
# Loaded by every Python process that is measured: all names mean this machine.
COUNT_LOOKUPS = """
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
# As a chief does, with one more connection to each task, as TensorFlow's.
WATCH = """
import logging, socket, sys, time
from tfps.cluster.connection_guard import ConnectionGuard
from tfps.cluster.monitor import TaskMonitor
logging.disable(logging.CRITICAL)
addresses = {f"worker {i}": address for i, address in enumerate(sys.stdin.read().split())}
kept = [socket.create_connection(("127.0.0.1", int(at.rsplit(":", 1)[1]))) for at in
        addresses.values()]
TaskMonitor(addresses, ConnectionGuard(addresses)).start()
print("begun", flush=True)
time.sleep(3600)
"""


@contextlib.contextmanager
def running(*command, **options):
    pipe = subprocess.PIPE
    command = [sys.executable, *command]
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, **options
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def watched(count, directory):
    """Lookups until all tasks answer and after, threads, and CPU seconds per second."""
    (directory / "sitecustomize.py").write_text(COUNT_LOOKUPS)
    lookups = directory / "lookups"
    lookups.write_bytes(b"")
    environ = {**os.environ, "PYTHONPATH": f"{directory}:{ROOT}", "LOOKUPS": str(lookups)}
    with (
        running("-m", "tests.answering_servers", str(count)) as servers,
        running("-c", WATCH, env=environ) as process,
    ):
        ports = [servers.stdout.readline().strip().rpartition(":")[2] for _ in range(count)]
        process.stdin.write("\n".join(f"criteo-worker-{port}-0.job:{port}" for port in ports))
        process.stdin.close()
        assert process.stdout.readline() == "begun\n"
        time.sleep(SETTLE_SECONDS)
        chief = psutil.Process(process.pid)
        family = [chief, *chief.children(recursive=True)]
        before = lookups.stat().st_size
        cpu = sum(sum(each.cpu_times()[:2]) for each in family)
        time.sleep(SECONDS)
        return {
            "lookups": (before, lookups.stat().st_size - before),
            "threads": sum(each.num_threads() for each in family),
            "cpu": (sum(sum(each.cpu_times()[:2]) for each in family) - cpu) / SECONDS,
        }


@pytest.mark.slow
def test_watching_costs_no_lookup_and_no_thread_for_each_task(tmp_path):
    few, many = watched(3, tmp_path), watched(30, tmp_path)
    assert (few["lookups"], many["lookups"]) == ((6, 0), (60, 0))
    assert few["threads"] == many["threads"]
