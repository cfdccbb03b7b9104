"""A network that loses packets without a word, between tasks and one of their number."""

import contextlib
import selectors
import socket
import threading


class BlackHole:
    """A TCP proxy that forwards until it is told to swallow everything; a context manager.

    From then on connections stay open and new ones are accepted, as by the kernel of a machine
    behind a firewall that drops packets: no end, no reset, no answer.

    Attributes:
        address: Where to connect instead of the target.
    """

    def __init__(self, target: str):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._swallows = threading.Event()
        self._stop, self._stopper = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stop, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run)

    def swallow(self) -> None:
        """Forwards nothing any more."""
        self._swallows.set()

    def __enter__(self) -> "BlackHole":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopper.send(b"x")
        self._thread.join()
        self._selector.close()
        for each in (*self._open, self._listener, self._stop, self._stopper):
            each.close()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._stop:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif self._selector.get_map().get(key.fd) is key:  # else closed by one before it
                    self._forward(key.fileobj, key.data)

    def _accept(self) -> None:
        client = self._listener.accept()[0]
        self._open.append(client)
        if self._swallows.is_set():
            return
        host, port = self._target.split(":")
        try:
            server = socket.create_connection((host, int(port)), 5)
        except OSError:
            client.close()
            return
        self._open.append(server)
        self._selector.register(client, selectors.EVENT_READ, server)
        self._selector.register(server, selectors.EVENT_READ, client)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        if self._swallows.is_set():
            self._selector.unregister(source)
            return
        with contextlib.suppress(OSError):
            if data := source.recv(1 << 16):
                target.sendall(data)
                return
        for end in (source, target):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()
