"""Reads from a connection, but not for ever."""

import io
import socket
import time
from typing import Any


class DeadlineReader(io.RawIOBase):
    """What a connection brings until a deadline, however slowly it comes."""

    def __init__(self, connection: socket.socket):
        super().__init__()
        self._connection = connection
        self._deadline = float("inf")

    def allow(self, seconds: float) -> None:
        """Sets the deadline to so many seconds from now."""
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads what there is, into a buffer."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)
