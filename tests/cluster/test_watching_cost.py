"""A chief watches its tasks without a lookup or a thread for each of them."""

import contextlib
import os
import subprocess
import sys
import time

import psutil
import pytest

from tests.answering_servers import other_process
from tests.name_server import NameServer
from tests.project import ROOT

SETTLE_SECONDS, SECONDS = 8.0, 10.0
# Loaded by every Python process that is measured: all names mean this machine. That is for those
# that ask the system; the prober asks the name server of the test.
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
    """Lookups until all tasks answer and after, and threads."""
    (directory / "sitecustomize.py").write_text(COUNT_LOOKUPS)
    lookups = directory / "lookups"
    lookups.write_bytes(b"")
    environ = {**os.environ, "PYTHONPATH": f"{directory}:{ROOT}", "LOOKUPS": str(lookups)}
    with (
        NameServer() as names,
        other_process(count) as (_, addresses),
        running("-c", WATCH, env=environ) as process,
    ):
        ports = [address.rpartition(":")[2] for address in addresses]
        hosts = {f"criteo-worker-{port}-0.job": port for port in ports}
        names.hosts = dict.fromkeys(hosts, "127.0.0.1")
        process.stdin.write("\n".join(names.uri(f"{host}:{hosts[host]}") for host in hosts))
        process.stdin.close()
        assert process.stdout.readline() == "begun\n"
        time.sleep(SETTLE_SECONDS)
        chief = psutil.Process(process.pid)
        family = [chief, *chief.children(recursive=True)]
        by_system, by_prober = lookups.stat().st_size, len(names.asked)
        assert set(names.asked) == set(hosts)
        time.sleep(SECONDS)
        return {
            "lookups": (by_system, by_prober),
            "later": lookups.stat().st_size + len(names.asked) - by_system - by_prober,
            "threads": sum(each.num_threads() for each in family),
        }


@pytest.mark.slow
def test_watching_costs_no_lookup_and_no_thread_for_each_task(tmp_path):
    few, many = watched(3, tmp_path), watched(30, tmp_path)
    # A name has an address of either kind, so gRPC asks twice.
    assert (few["lookups"], many["lookups"]) == ((3, 6), (30, 60))
    assert few["later"] == many["later"] == 0
    assert few["threads"] == many["threads"]
