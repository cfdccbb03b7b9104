"""How the launchers of N machines find each other, and learn that the job has ended.

Each connects to the first machine's and says where its tasks will serve; the first answers with the
whole cluster. The connection stays: it ends with the chief's exit code, or with that of a launcher
whose tasks cannot go on. Messages are lines of JSON. There is no authentication, as in TensorFlow's
own servers.
"""

import contextlib
import dataclasses
import json
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cloud.local.process import Events
from cloud.local.supervisor import Supervisor
from cloud.node.places import Place
from tfps.cluster import sockets
from tfps.cluster.spec import Cluster
from tfps.errors import EXIT_RESIZED, EXIT_RUN, EXIT_USER, RunError, UserError
from tfps.job_dir.size import Size

_MOST_BYTES = 1 << 20  # of a message
_TOLD_SECONDS = 30.0  # between two words on who is waited for
_HELLO_SECONDS = 2.0  # that a launcher has to say who it is
_ANSWER_SECONDS = 10.0  # that a peer has to answer, or to hear the end
_AGAIN_SECONDS = 2.0  # the same, where a launcher has its own tasks to look after meanwhile
_RETRY_SECONDS = 1.0
Say = Callable[[str], None]
Addresses = Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Hello:
    """What a launcher says first."""

    rank: int
    started: str  # a checksum of what it was started with, which is the same for all
    size: Size  # of the run now
    ports: dict[str, list[int]]  # of its tasks by job, and "beside" the chief
    # the addresses of all tasks by job, if it has met the others before
    known: dict[str, list[str]] = dataclasses.field(default_factory=dict)


class OtherSizeError(Exception):
    """The run has another size than this launcher knew, which its `new_size` says."""


class Peer:
    """A connection that carries lines of JSON."""

    def __init__(self, connection: socket.socket):
        sockets.keep_alive(connection)  # a machine may vanish without a packet
        self.connection = connection
        self._rest = b""

    def send(self, message: Any) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Any:
        """The next message; None at the end, also where what comes is none."""
        while b"\n" not in self._rest:
            try:
                data = self.connection.recv(1 << 16)
            except OSError:
                return None
            if not data or len(self._rest) > _MOST_BYTES:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            return None

    def close(self) -> None:
        self.connection.close()


class FirstMachine:
    """The launcher that all others connect to, and whose chief's end is the job's."""

    has_chief = True

    def __init__(
        self,
        place: Place,
        port: int,
        say: Say,
        limit_seconds: float,
        new_size: Callable[[], Size],
        *,
        is_first_run: bool = True,
    ):
        """Listens at the port.

        Args:
            new_size: The size that the chief asked for at its end.
            is_first_run: Whether this launcher has had no run before.
        """
        self.new_size = new_size
        self._is_first_run = is_first_run
        self._place = place
        self._say = say
        self._limit_seconds = limit_seconds
        self._peers: dict[int, Peer] = {}
        self._hellos: dict[int, Hello] = {}
        self._hosts = dict(enumerate(place.hosts or [place.first]))  # by rank
        self._cluster: dict[str, list[str]] = {}
        try:
            self._listener = socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True
            )
        except (OSError, ValueError):  # a machine without IPv6
            try:
                self._listener = socket.create_server(("", port))
            except OSError as error:
                raise UserError(
                    f"port {port}, at which the machines meet, cannot be used "
                    f"({error.strerror}); name another with --port on all of them"
                ) from None

    def meet(self, hello: Hello) -> Addresses:
        """Waits for all machines; the addresses of all tasks by job.

        Raises:
            OtherSizeError: If the others know the run in another size.
        """
        self._hellos[0] = hello
        limit_seconds = self._limit_seconds
        began = told = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while missing := sorted(set(range(self._place.nodes)) - set(self._hellos)):
                now = time.monotonic()
                who = f"machines {', '.join(map(self._name, missing))} of {self._place.nodes}"
                if now - began > limit_seconds:
                    raise RunError(f"{who} have not come in {limit_seconds:g} s (--meet_seconds)")
                if now - told > _TOLD_SECONDS:
                    told = now
                    self._say(f"waiting for {who}, {now - began:.0f} of {limit_seconds:g} s so far")
                if selector.select(_RETRY_SECONDS):
                    self._accept()
                self._check_size()
        known = [each.known for each in self._hellos.values() if each.known]
        self._cluster = known[0] if known else self._found()
        for peer in self._peers.values():
            with contextlib.suppress(OSError):  # it comes again
                peer.send({"cluster": self._cluster})
        return _addresses(self._cluster)

    def begin(self, events: Events, supervisor: Supervisor) -> None:
        """Watches the others: one may come again, or not be able to go on."""

        def watch(rank: int, peer: Peer) -> None:
            peer.connection.settimeout(_ANSWER_SECONDS)
            events.watch(
                peer.connection.fileno(), lambda: self._hear(rank, peer, events, supervisor)
            )

        def accept() -> None:
            if rank := self._accept():
                with contextlib.suppress(OSError):
                    self._peers[rank].send({"cluster": self._cluster})
                self._say(f"machine {self._name(rank)} is back")
                watch(rank, self._peers[rank])

        events.watch(self._listener.fileno(), accept)
        for rank, peer in self._peers.items():
            watch(rank, peer)

    def tell_end(self, code: int) -> None:
        """Tells all others, and waits a moment until they have heard it."""
        size = {"size": list(self.new_size())} if code == EXIT_RESIZED else {}
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.send({"ended": code, **size})
                peer.connection.shutdown(socket.SHUT_WR)
        ends = time.monotonic() + _ANSWER_SECONDS
        for peer in self._peers.values():
            with contextlib.suppress(OSError):
                peer.connection.settimeout(max(0.01, ends - time.monotonic()))
                peer.receive()
            peer.close()
        self._listener.close()

    def _hear(self, rank: int, peer: Peer, events: Events, supervisor: Supervisor) -> None:
        said = peer.receive()
        if isinstance(said, dict) and said.get("failed") in (EXIT_USER, EXIT_RUN):
            supervisor.fail(said["failed"], f"machine {self._name(rank)} cannot go on")
        events.forget(peer.connection.fileno())
        if self._peers.get(rank) is peer:
            del self._peers[rank]
            self._say(f"machine {self._name(rank)} is gone")
        peer.close()

    def _accept(self) -> int | None:
        """Takes a connection; the rank of the machine, if it is one of this job's."""
        connection, (host, *_) = self._listener.accept()
        connection.settimeout(_HELLO_SECONDS)
        peer = Peer(connection)
        try:
            hello = msgspec.convert(peer.receive(), Hello)
        except msgspec.ValidationError:  # somebody else
            peer.close()
            return None
        if answer := self._refusal(hello):
            with contextlib.suppress(OSError):
                peer.send(answer)
            peer.close()
            return None
        if before := self._peers.pop(hello.rank, None):
            with contextlib.suppress(OSError):  # it is gone, which nobody has noticed yet
                before.connection.shutdown(socket.SHUT_RDWR)
        self._peers[hello.rank] = peer
        self._hellos[hello.rank] = hello
        if not self._place.hosts:
            self._hosts[hello.rank] = host.removeprefix("::ffff:")
        return hello.rank

    def _refusal(self, hello: Hello) -> dict[str, Any]:
        """What is said to a machine that is not taken; nothing to one that is."""
        if hello.started != self._hellos[0].started:
            what = "it was started with other flags or arguments than the first machine"
            return {"refused": what}
        if not 0 < hello.rank < self._place.nodes:
            nodes = self._place.nodes
            return {"refused": f"there are {nodes} machines, and their ranks begin with 0"}
        if hello.size != self._hellos[0].size and not self._may_be_behind(hello):
            return {"size": list(self._hellos[0].size)}
        return {}

    def _may_be_behind(self, hello: Hello) -> bool:
        """Whether this machine was started again while another has known the run's size."""
        return bool(hello.known) and not self._cluster and self._is_first_run

    def _check_size(self) -> None:
        """Leaves the meeting if another machine knows the size of the run better."""
        own = self._hellos[0].size
        size = next((each.size for each in self._hellos.values() if each.size != own), None)
        if size is None:
            return
        self.new_size = lambda: size
        for peer in self._peers.values():
            peer.close()
        self._listener.close()
        raise OtherSizeError

    def _found(self) -> dict[str, list[str]]:
        cluster: dict[str, list[str]] = {}
        for rank in range(self._place.nodes):
            host = self._hosts[rank]
            if ":" in host and not host.startswith("["):
                host = f"[{host}]"
            for job, ports in self._hellos[rank].ports.items():
                cluster.setdefault(job, []).extend(f"{host}:{port}" for port in ports)
        return cluster

    def _name(self, rank: int) -> str:
        return f"{rank} ({self._hosts[rank]})" if rank in self._hosts else str(rank)


class OtherMachine:
    """A launcher that waits for the first one's word."""

    has_chief = False

    def __init__(self, place: Place, port: int, say: Say, limit_seconds: float):
        self._place = place
        self._at = f"{place.first}:{port}"
        self._address = place.first.strip("[]"), port
        self._say = say
        self._limit_seconds = limit_seconds
        self._peer: Peer | None = None
        self._has_heard_end = False
        self._size: list[int] = []

    def new_size(self) -> Size:
        """The size that the first machine has said."""
        try:
            return msgspec.convert(self._size, Size)
        except msgspec.ValidationError:
            raise RunError(f"{self._at} has not said how many tasks there are to be") from None

    def meet(self, hello: Hello) -> Addresses:
        """Connects to the first machine, and waits for the addresses of all tasks by job.

        Raises:
            OtherSizeError: If the first machine has the run in another size.
        """
        self._hello = hello
        began = told = time.monotonic()
        while True:
            error, cluster = self._ask(self._limit_seconds)  # the last of all may come so late
            if self._size:
                raise OtherSizeError
            if cluster:
                self._hello = dataclasses.replace(hello, known=cluster)
                return _addresses(cluster)
            now = time.monotonic()
            if now - began > self._limit_seconds:
                raise RunError(
                    f"the first machine, {self._at}, has not answered in {self._limit_seconds:g} s "
                    f"(--meet_seconds): {error}"
                )
            if now - told > _TOLD_SECONDS:
                told = now
                self._say(
                    f"waiting for the first machine, {self._at}, {now - began:.0f} of "
                    f"{self._limit_seconds:g} s so far: {error}"
                )
            time.sleep(_RETRY_SECONDS)

    def begin(self, events: Events, supervisor: Supervisor) -> None:
        """Watches the first machine, which may be started again."""
        assert self._peer
        peer = self._peer
        events.watch(peer.connection.fileno(), lambda: self._hear(peer, events, supervisor))

    def tell_end(self, code: int) -> None:
        """Tells the first machine of tasks that cannot go on."""
        if self._peer:
            if code in (EXIT_USER, EXIT_RUN) and not self._has_heard_end:
                with contextlib.suppress(OSError):
                    self._peer.send({"failed": code})
            self._peer.close()

    def _hear(self, peer: Peer, events: Events, supervisor: Supervisor) -> None:
        said = peer.receive()
        events.forget(peer.connection.fileno())
        if isinstance(said, dict) and isinstance(said.get("ended"), int):
            self._has_heard_end = True
            self._size = said.get("size", [])
            supervisor.chief_ended(said["ended"])
            return
        peer.close()
        self._peer = None
        self._say(f"the first machine, {self._at}, is gone; waiting for it")
        self._come_again(time.monotonic(), events, supervisor)

    def _come_again(self, since: float, events: Events, supervisor: Supervisor) -> None:
        error, cluster = self._ask(_AGAIN_SECONDS)
        if self._size:
            self._has_heard_end = True
            supervisor.chief_ended(EXIT_RESIZED)
        elif cluster:
            self._say(f"the first machine, {self._at}, is back")
            self.begin(events, supervisor)
        elif time.monotonic() - since > self._limit_seconds:
            supervisor.fail(
                EXIT_RUN,
                f"the first machine, {self._at}, has been gone for {self._limit_seconds:g} s "
                f"(--meet_seconds; {error})",
            )
        else:
            events.after(_RETRY_SECONDS, lambda: self._come_again(since, events, supervisor))

    def _ask(self, seconds: float) -> tuple[str, dict[str, list[str]]]:
        """The cluster, if it comes in this time; else empty, with what is wrong."""
        try:
            connection = socket.create_connection(self._address, min(seconds, _ANSWER_SECONDS))
        except OSError as error:
            return error.strerror or str(error), {}
        peer = Peer(connection)
        connection.settimeout(seconds)
        try:
            peer.send(dataclasses.asdict(self._hello))
        except OSError as error:
            peer.close()
            return error.strerror or str(error), {}
        said = peer.receive()
        if isinstance(said, dict) and "refused" in said:
            peer.close()
            raise UserError(
                f"{self._at} does not take machine {self._place.rank}: {said['refused']}"
            )
        if isinstance(said, dict) and said.get("size"):
            self._size = said["size"]
            peer.close()
            return "", {}
        try:
            cluster = msgspec.convert(said, dict[str, dict[str, list[str]]])["cluster"]
        except (msgspec.ValidationError, KeyError):
            peer.close()
            return "it has closed the connection", {}
        self._peer = peer
        return "", cluster


def _addresses(cluster: Mapping[str, list[str]]) -> Addresses:
    return {job: tuple(addresses) for job, addresses in cluster.items()}


def cluster_of(addresses: Addresses) -> Cluster:
    return Cluster(addresses["chief"], addresses.get("worker", ()), addresses.get("ps", ()))
