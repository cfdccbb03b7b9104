"""Listens, and ends with a signal: what `trainer.serve` does."""

import trainer.console.quiet_tensorflow  # noqa: F401 - it loads TensorFlow  # isort: skip

import errno
import signal
import socket
import sys
import threading
import urllib.parse

import uvicorn
from absl import flags

from tfps import byte_size
from tfps.cluster import resources
from tfps.errors import UserError, listed
from tfps.storage import objects
from tfps.storage.objects import Use
from trainer.console import terminal
from trainer.flags import experiment_flags
from trainer.serving.app import ModelApp, is_loopback
from trainer.serving.model_versions import ModelVersions
from trainer.serving.raw_rows import RawRows

_END_SECONDS = 10  # for answers that are being given when a signal arrives
_IDLE_SECONDS = 60  # for which a connection is kept without a request
_MOST_CONNECTIONS = 512  # at once; more are refused with 503


def run() -> int:
    values = flags.FLAGS
    if not values.model_name:
        raise UserError("--model_name is empty; paths are /v1/models/NAME")
    max_body = byte_size.parse(values.max_body, "--max_body")
    terminal.start_logging("lines", 0.0)
    objects.check([Use("--model", values.model)])
    resources.allow_files(_MOST_CONNECTIONS, "trainer.serve")
    listener = _listener(values.address, values.port)
    versions = ModelVersions.open(values.model)
    task = experiment_flags.task_of(versions.newest.model)
    rows = RawRows.of(task) if task else None
    app = ModelApp(versions, values.model_name, values.address, max_body, values.max_batch, rows)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_END_SECONDS,
        limit_concurrency=_MOST_CONNECTIONS,
    )
    server = uvicorn.Server(config)
    ended: list[int] = []

    def end(number: int, _: object) -> None:
        ended.append(number)
        server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn hands them on once it has ended
        signal.signal(number, end)
    stop = threading.Event()
    follow = (values.poll_seconds, stop)
    threading.Thread(target=versions.follow, args=follow, name="versions", daemon=True).start()
    listener.listen(_MOST_CONNECTIONS)
    _say_where(listener, versions, values.model_name, rows)
    server.run(sockets=[listener])
    stop.set()
    if not ended:
        return 1
    sys.stdout.write(f"ended by {signal.Signals(ended[0]).name}\n")
    return 128 + ended[0]


def _listener(address: str, port: int) -> socket.socket:
    """Takes the port; nobody connects before the server listens."""
    try:
        [(family, *_, place), *_] = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        return listener
    except OSError as error:
        raise UserError(_cannot_bind(address, port, error)) from None


def _cannot_bind(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"--port={port} of {address} is taken; name another (0 for any that is free)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"--port={port} is not for this user ({error.strerror}); name one above 1023"
    return f"--address={address} cannot be bound ({error.strerror}); name one of this machine"


def _say_where(
    listener: socket.socket, versions: ModelVersions, name: str, rows: RawRows | None
) -> None:
    newest = versions.newest
    host, port = listener.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    path = f"v1/models/{urllib.parse.quote(name, safe='')}:predict"
    sys.stdout.write(
        f"model: {newest.model.directory}, version {newest.number}\n"
        f"serving: {url} (a form), {url}{path}\n"
    )
    if rows:
        sys.stdout.write(f"Send raw rows, with the columns {listed(rows.columns)}.\n")
    elif names := newest.model.converted:
        sys.stdout.write(
            f"Send {listed(names)} as the config's rows() converts them: the model does not. "
            "With --config this server takes raw rows.\n"
        )
    if is_loopback(host):
        sys.stdout.write("There is no authentication and no encryption; this machine alone asks.\n")
    else:
        sys.stdout.write(
            "WARNING: there is no authentication and no encryption, and other machines may ask.\n"
        )
    sys.stdout.flush()
