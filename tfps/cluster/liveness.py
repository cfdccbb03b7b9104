"""Whether a task's gRPC server answers, asked without TensorFlow."""

import enum
import socket

from tfps.cluster import http2
from tfps.cluster.http2 import Frame, Http2Connection, NotHttp2Error
from tfps.cluster.names import names

ANSWER_SECONDS = 5.0
PING = Frame(http2.PING, payload=b"tfpsping")
PONG = PING._replace(flags=http2.ACK)


class Liveness(enum.Enum):
    """What was seen of a task when it was asked; the value says it for people."""

    ANSWERS = "it answered"
    REFUSES = "its port refused connections"
    UNKNOWN_HOST = "its host's name did not resolve"
    UNREACHABLE = "no connection to it came about"
    SILENT = "it accepted connections but did not answer"
    FOREIGN = "what answered at its address was no TensorFlow server"

    @property
    def answers(self) -> bool:
        """Whether the task is there."""
        return self is Liveness.ANSWERS

    @property
    def what_to_do(self) -> str:
        """What a person should look at."""
        return _WHAT_TO_DO[self]


def probe(address: str, limit_seconds: float = ANSWER_SECONDS) -> Liveness:
    """Asks a gRPC server for a sign of life.

    gRPC's own threads answer a PING, whatever the process computes. The kernel, which accepts
    connections for a stopped process too, does not, nor does another program.
    """
    seen = _ping(address, limit_seconds)
    if not seen.answers:
        names.doubt(address)
    return seen


def _ping(address: str, limit_seconds: float) -> Liveness:
    """What a PING to an address ends in."""
    try:
        connection = Http2Connection.connect(address, limit_seconds)
    except ConnectionRefusedError:
        return Liveness.REFUSES
    except socket.gaierror:
        return Liveness.UNKNOWN_HOST
    except OSError:
        return Liveness.UNREACHABLE
    with connection:
        try:
            connection.ask(PING)
            while connection.receive() != PONG:
                pass
        except TimeoutError:
            return Liveness.SILENT
        except NotHttp2Error:
            return Liveness.FOREIGN
    return Liveness.ANSWERS


_WHAT_TO_DO = {
    Liveness.ANSWERS: "look in its log",
    Liveness.REFUSES: (
        "start it, or look in its log why it ended, or correct its address in TF_CONFIG"
    ),
    Liveness.UNKNOWN_HOST: "correct its host in TF_CONFIG, or look at the name service",
    Liveness.UNREACHABLE: (
        "look whether its machine runs, and whether a firewall drops what is sent to its port"
    ),
    Liveness.SILENT: (
        "if its process was stopped, continue it (kill -CONT) or start it again; else look whether "
        "its machine is overloaded or its packets are dropped"
    ),
    Liveness.FOREIGN: (
        "end the program that has its port, or give the task another one in TF_CONFIG"
    ),
}
