"""Serves an exported model over HTTP, to be tried out: a form, and TensorFlow Serving's REST API.

    python -m trainer.serve --model=JOB_DIR

`--model` is a job's directory, its `export`, or a version's. The newest version is served, and the
next one in its place once it is whole and answers its warm-up requests. There is no authentication
and no encryption: it listens on this machine alone unless `--address` says otherwise.
"""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import os
import queue
import signal
import sys
import threading
import urllib.parse

from absl import flags

from tfps import byte_size
from tfps.cluster import open_files
from tfps.errors import UserError
from tfps.storage import objects
from tfps.storage.objects import Use
from trainer import entry
from trainer.console import terminal
from trainer.serving import origin
from trainer.serving.handler import Handler
from trainer.serving.http_server import LimitedServer, Limits
from trainer.serving.model_api import ModelApi
from trainer.serving.model_versions import ModelVersions

_END_SECONDS = 10.0  # for answers that are being given when a signal arrives
_PREDICT_WAIT_SECONDS = 60.0


def main() -> int:
    """Serves what the flags name until a signal ends it."""
    values = flags.FLAGS
    if not values.model_name:
        raise UserError("--model_name is empty; paths are /v1/models/NAME")
    terminal.start_logging("lines", 0.0)
    objects.check([Use("--model", values.model)])
    limits = Limits(
        max_body=byte_size.parse(values.max_body, "--max_body"),
        read_seconds=values.read_seconds,
        idle_seconds=values.idle_seconds,
        max_connections=values.max_connections,
    )
    who = f"--max_connections={limits.max_connections}"
    open_files.allow_for_files(limits.max_connections, who)
    server = LimitedServer(values.address, values.port, Handler, limits)
    versions = ModelVersions.open(values.model)
    api = ModelApi(
        versions, values.model_name, values.max_batch, os.cpu_count() or 1, _PREDICT_WAIT_SECONDS
    )
    signals = _signals()
    server.begin(api.answer)
    stop = threading.Event()
    follower = threading.Thread(
        target=versions.follow, args=(values.poll_seconds, stop), name="versions", daemon=True
    )
    follower.start()
    _say_where(server, versions, values.model_name)
    number = signals.get()
    stop.set()
    server.end(_END_SECONDS)
    sys.stdout.write(f"ended by {signal.Signals(number).name}\n")
    return 128 + number


def _signals() -> "queue.SimpleQueue[int]":  # noqa: TID251
    """What SIGINT and SIGTERM arrive in."""
    # Its handler may interrupt the wait for it, of which a `queue.Queue` would hold the lock.
    arrived: queue.SimpleQueue[int] = queue.SimpleQueue()  # noqa: TID251
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: arrived.put(number))
    return arrived


def _say_where(server: LimitedServer, versions: ModelVersions, name: str) -> None:
    newest = versions.newest
    path = f"v1/models/{urllib.parse.quote(name, safe='')}:predict"
    sys.stdout.write(
        f"model: {newest.model.directory}, version {newest.number}\n"
        f"serving: {server.url()} (a form), {server.url()}{path}\n"
    )
    if origin.is_loopback(str(server.server_address[0])):
        sys.stdout.write("There is no authentication and no encryption; this machine alone asks.\n")
    else:
        sys.stdout.write(
            "WARNING: there is no authentication and no encryption, and other machines may ask.\n"
        )
    sys.stdout.flush()


def _define_flags() -> None:
    flags.DEFINE_string(
        "model", None, "Directory of a job, its export, or one version of it.", required=True
    )
    flags.DEFINE_string("model_name", "default", "The model's name in /v1/models/NAME.")
    flags.DEFINE_string("address", "127.0.0.1", "To listen at; 0.0.0.0 for other machines.")
    flags.DEFINE_integer("port", 8501, "To listen at; 0 for any that is free.", 0, 65535)
    flags.DEFINE_float("poll_seconds", 5.0, "Between looks for another version.", 0.1)
    flags.DEFINE_integer("max_batch", 1024, "Records that a request may have.", 1)
    flags.DEFINE_string("max_body", "16MiB", "Bytes that a request may have.")
    flags.DEFINE_float("read_seconds", 10.0, "In which a request must come whole.", 0.1)
    flags.DEFINE_float("idle_seconds", 60.0, "A connection stays open without a request.", 0.1)
    flags.DEFINE_integer("max_connections", 512, "Connections at once; more are refused.", 1)


if __name__ == "__main__":
    _define_flags()
    entry.run(main, has_lasting_threads=True)
