"""A name server (DNS) on the loopback interface."""

import socket
import struct
import threading

_ADDRESS_KIND = 1  # an IPv4 address, as asked and answered
_FLAGS = 0x8580  # an answer, by who knows


class NameServer:
    """Answers from a dict; a context manager.

    Attributes:
        hosts: The IPv4 address of each name.
        asked: The names that were asked for, also of addresses of other kinds.
    """

    def __init__(self):
        self.hosts = {}
        self.asked = []
        self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run)

    def uri(self, address):
        """An address for gRPC, with its name looked up here."""
        return f"dns://127.0.0.1:{self._socket.getsockname()[1]}/{address}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _run(self):
        while True:
            question, sender = self._socket.recvfrom(512)
            if not question:
                return
            labels, at = [], 12
            while size := question[at]:
                labels.append(question[at + 1 : at + 1 + size].decode())
                at += 1 + size
            end = at + 5  # the kind and the class
            name = ".".join(labels)
            self.asked.append(name)
            [kind] = struct.unpack_from(">H", question, at + 1)
            found = self.hosts.get(name)
            code = 0 if found else 3  # there is no such name
            answer = b""
            if found and kind == _ADDRESS_KIND:
                place = socket.inet_aton(found)
                answer = struct.pack(">HHHIH", 0xC00C, _ADDRESS_KIND, 1, 0, len(place)) + place
            head = struct.pack(">HHHHH", _FLAGS | code, 1, 1 if answer else 0, 0, 0)
            self._socket.sendto(question[:2] + head + question[12:end] + answer, sender)
