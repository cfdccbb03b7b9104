"""Starts the worker beside the chief, which trains as any other while the chief coordinates."""

import dataclasses
import json
import logging
import os
import posixpath
import sys
from collections.abc import Mapping

from tfps.cluster import chief_worker
from tfps.cluster.address import refuse_taken_port
from tfps.cluster.spec import CLUSTER_SPEC, TF_CONFIG, TF_CONFIG_FILE, Cluster
from trainer.chief.interruption import has_restarted
from trainer.chief.worker_keeper import NICENESS, Orders

_MODULE = "trainer.chief.worker_keeper"
_log = logging.getLogger(__name__)


def start(cluster: Cluster, restarts: int, labels: Mapping[str, str], log: str | None) -> None:
    """Starts it and what keeps it, unless this process did so before it began again.

    It is the same program with the same arguments, in a process of its own. Call in the main
    thread, before stderr is redirected and before the environment says that a chief needs no GPU.

    Args:
        labels: Of its log lines, where those are JSON; empty where they are for people.
        log: The chief's file for TensorFlow's own messages, beside which it has one; None if these
            go to stderr.
    """
    if has_restarted():
        return
    own = cluster.of_chief_worker
    refuse_taken_port(own)
    command = [sys.executable, *sys.orig_argv[1:], "--progress=lines"]
    if log:
        file = posixpath.join(posixpath.dirname(log), f"{own.task.file_name}.log")
        command.append(f"--tensorflow_log={file}")
    environ = chief_worker.environment(os.environ, own.index)
    orders = Orders(own.task.label, command, environ, restarts, labels)
    # A file without a name, since an argument may not be as long.
    file_number = os.memfd_create("tfps-orders")
    with os.fdopen(file_number, "w+") as written:
        json.dump(dataclasses.asdict(orders), written)
        written.flush()
        written.seek(0)
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", _MODULE, str(os.getpid())],
            {
                # Those who look for a task by its environment shall find the worker alone.
                name: value
                for name, value in os.environ.items()
                if name not in (TF_CONFIG, TF_CONFIG_FILE, CLUSTER_SPEC)
            },
            file_actions=[(os.POSIX_SPAWN_DUP2, file_number, 0)],
        )


def tell(cluster: Cluster) -> None:
    """Says that the chief works too, once log lines have a place to go."""
    own = cluster.of_chief_worker
    _log.info(
        "the chief works too: %s runs beside it at %s, niceness %d (--nochief_works leaves it out)",
        own.name,
        own.address,
        NICENESS,
    )
