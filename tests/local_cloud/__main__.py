"""The process of a local cloud: ends when its stdin does, whatever becomes of who started it."""

import logging
import os
import pathlib
import sys
import threading

from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import create_server

from tests.local_cloud.certificates import write_certificates
from tests.local_cloud.proxy import Proxy


def main(directory: pathlib.Path, buckets: list[str]) -> None:
    """Serves until stdin is closed; the first line of stdout is the proxy's port."""
    write_certificates(directory)
    logging.disable(logging.ERROR)
    emulator = create_server("127.0.0.1", 0, in_memory=True)
    emulator.start()
    for bucket in buckets:
        create_bucket(bucket, emulator._storage)
    address = emulator._api._httpd.server_address
    proxy = Proxy((str(address[0]), address[1]), str(directory / "server.pem"))
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(proxy.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)  # the emulator's thread would go on


main(pathlib.Path(sys.argv[1]), sys.argv[2:])
