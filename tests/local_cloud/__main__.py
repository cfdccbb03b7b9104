"""The process of a local cloud: ends when its stdin does, whatever becomes of who started it."""

import logging
import os
import pathlib
import sys
import threading

from tests.local_cloud import servers
from tests.local_cloud.certificates import write_certificates
from tests.local_cloud.proxy import Proxy


def main(directory: pathlib.Path, server: str, buckets: list[str]) -> None:
    """Serves until stdin is closed; the first line of stdout is the proxy's port."""
    write_certificates(directory)
    logging.disable(logging.ERROR)
    address, end = servers.START[server](buckets)
    proxy = Proxy(address, str(directory / "server.pem"), completes=server == servers.EMULATOR)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(proxy.server_port, flush=True)
    sys.stdin.read()
    end()
    os._exit(0)  # the emulator's thread would continue


main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
