"""What may listen at a task's address: real sockets that answer, or do not."""

import contextlib
import socket
import struct
import threading

_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_GOAWAY = bytes((0, 0, 8, 7, 0, 0, 0, 0, 0)) + bytes(8)


class Peer:
    """A listening socket and a thread that serves it; a context manager.

    Attributes:
        address: Its `host:port`.
        asked: Set when somebody has connected.
    """

    def __init__(self, act, address="127.0.0.1:0"):
        """Listens; `act` gets each connection, which is closed unless it returns True."""
        self._act = act
        host, port = address.split(":")
        self._listener = socket.create_server((host, int(port)))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked = threading.Event()
        self._open = []
        self._thread = threading.Thread(target=self._serve)

    def close(self):
        """Refuses connections from now on."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        for connection in self._open:
            connection.close()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self.close()

    def _serve(self):
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self.asked.set()
            connection.settimeout(10)
            with contextlib.suppress(OSError):
                if self._act(connection):
                    self._open.append(connection)
                    continue
            connection.close()


def stay_silent(connection):
    """Accepts, and says nothing."""
    return True


def speak_http1(connection):
    """Acts as a web server that does not know HTTP/2."""
    connection.recv(100)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def greet_as_ssh(connection):
    """Acts as an SSH server, which speaks first."""
    connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
    return True


def send_away(connection):
    """Acts as an HTTP/2 server that takes no requests."""
    connection.sendall(_SETTINGS + _GOAWAY)
    return True


def hang_up(connection):
    """Closes the connection at once."""


def reset(connection):
    """Resets the connection when a client has written."""
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def free_address():
    """An address that a server may take."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        return f"localhost:{held.getsockname()[1]}"


_HELD = []  # bound until this process ends


def refusing_address():
    """An address at which nobody listens, nor can: it is held, so each is another one."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    return f"127.0.0.1:{held.getsockname()[1]}"
