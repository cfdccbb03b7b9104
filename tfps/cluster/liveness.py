"""Asks TensorFlow servers, without TensorFlow, whether they answer and which task they are."""

import asyncio
import contextlib
import enum
import functools
import re
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from tfps.job_dir.task_name import TaskName

PROBE_SECONDS = 1.0
ANSWER_SECONDS = 5.0
# TCP_USER_TIMEOUT of the connections here: no others have it, so `sockets` leaves them out by it.
USER_TIMEOUT_MS = 5077
_MOST_PER_SECOND = 500  # questions of a prober: more would take more than 15 % of a core
_BATCH_SECONDS = 0.1
_RESOLVE_SECONDS = 5.0  # at least, between two lookups of one name
_AGAIN_SECONDS = 0.3  # more than the first pause before another connection
_LATE_SECONDS = 1.0
_BEAT_SECONDS = 0.2
_GET_STATUS = "/tensorflow.WorkerService/GetStatus"
_NO_METHOD = "/tensorflow.WorkerService/NoMethodOfTensorFlow"
_TASK = re.compile(r"/job:(\w+)/replica:0/task:(\d+)/device:")

_T = TypeVar("_T")


class Liveness(enum.Enum):
    """What was seen of a task when it was asked; the value says it for people."""

    ANSWERS = "it answered"
    REFUSES = "its port refused connections"
    UNKNOWN_HOST = "its host's name did not resolve"
    UNREACHABLE = "it could not be reached"
    SILENT = "it accepted connections but did not answer"
    FOREIGN = "what answered at its address was no TensorFlow server"

    @property
    def answers(self) -> bool:
        return self is Liveness.ANSWERS

    @property
    def what_to_do(self) -> str:
        return _WHAT_TO_DO[self]


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
# gRPC's wording; tests/cluster/test_liveness.py has a real case of each.
_WORDINGS = (
    ("Connection refused", Liveness.REFUSES),
    ("errors resolving", Liveness.UNKNOWN_HOST),
    ("before receiving SETTINGS", Liveness.SILENT),
    ("Failed parsing HTTP/2", Liveness.FOREIGN),
    ("Socket closed", Liveness.FOREIGN),
    ("reset by peer", Liveness.FOREIGN),
    ("Broken pipe", Liveness.FOREIGN),
    ("GOAWAY", Liveness.FOREIGN),
)


class ServerIdentity(NamedTuple):
    """What a server says of itself."""

    task: TaskName
    incarnation: int  # the same task started again has another

    @classmethod
    def parse(cls, response: bytes) -> "ServerIdentity | None":
        """The identity in a serialized `GetStatusResponse`; None if it is no such thing."""
        try:
            devices = _status_type().FromString(response).device_attributes
        except DecodeError:
            return None
        found = _TASK.match(devices[0].name) if devices else None
        return found and cls(TaskName(found[1], int(found[2])), devices[0].incarnation)


@functools.cache
def _status_type() -> Any:
    """`GetStatusResponse` with the fields needed here; TensorFlow's own would load TensorFlow."""
    file = descriptor_pb2.FileDescriptorProto(name="status.proto", package="tfps", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto
    device = file.message_type.add(name="Device")
    device.field.add(name="name", number=1, type=field.TYPE_STRING)
    device.field.add(name="incarnation", number=6, type=field.TYPE_FIXED64)
    status = file.message_type.add(name="Status").field.add(
        name="device_attributes", number=1, type=field.TYPE_MESSAGE, type_name=".tfps.Device"
    )
    status.label = field.LABEL_REPEATED
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tfps.Status"))


class ProbeResult(NamedTuple):
    """What one question to a server ended in."""

    address: str
    liveness: Liveness
    since: float  # when it was asked, on the monotonic clock that a machine's processes share
    when: float  # the same in seconds since the epoch
    identity: ServerIdentity | None = None  # None if none answered, or it was too busy to say

    @property
    def answers(self) -> bool:
        return self.liveness.answers


class Prober:
    """Asks each server, waits for its answer, and asks it again after an interval.

    The questions are spread over the interval, which grows with the number of servers where that is
    more than 500. One that is not answered delays no other.
    """

    def __init__(
        self,
        addresses: Collection[str],
        interval_seconds: float = PROBE_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ):
        self._addresses = list(addresses)
        self._interval = max(interval_seconds, len(self._addresses) / _MOST_PER_SECOND)
        self._limit = answer_seconds
        self._task: asyncio.Task[None] | None = None
        self.reported_until = 0.0  # on the monotonic clock: all that had come by then was reported

    def start(self, on_result: Callable[[ProbeResult], None]) -> None:
        """Starts to ask, unless it has or there is nobody to ask.

        The thread of all probers calls `on_result` with every result: it must not wait, nor stop
        this.
        """
        if self._task is None and self._addresses:

            async def begin() -> asyncio.Task[None]:
                return asyncio.create_task(self._run(on_result))

            self._task = _result(begin())

    def stop(self) -> None:
        """Ends all connections."""

        async def end(task: asyncio.Task[None]) -> None:
            task.cancel()
            await asyncio.wait([task])

        if self._task is not None:
            _result(end(self._task))

    async def _run(self, on_result: Callable[[ProbeResult], None]) -> None:
        async with asyncio.TaskGroup() as group:
            for index, address in enumerate(self._addresses):
                phase = _BATCH_SECONDS * (index % max(1, int(self._interval / _BATCH_SECONDS)))
                group.create_task(self._watch(address, phase, on_result))
            while True:
                began = time.monotonic()
                await asyncio.sleep(_BEAT_SECONDS)
                self.reported_until = began

    async def _watch(
        self, address: str, phase: float, on_result: Callable[[ProbeResult], None]
    ) -> None:
        await asyncio.sleep(phase)
        async with _channel(address, self._limit) as channel:
            while True:
                on_result(await _ask(address, channel, self._limit))
                # Questions of one phase stay together: that halves their cost.
                await asyncio.sleep(self._interval - (time.monotonic() - phase) % self._interval)


def ask_all(
    addresses: Collection[str], limit_seconds: float = ANSWER_SECONDS
) -> dict[str, ProbeResult]:
    """Asks each server once, all at the same time; the results by address."""

    async def ask(address: str) -> ProbeResult:
        async with _channel(address, limit_seconds) as channel:
            return await _ask(address, channel, limit_seconds)

    async def ask_each() -> list[ProbeResult]:
        return await asyncio.gather(*map(ask, addresses))

    return {result.address: result for result in _result(ask_each())}


def probe(address: str, limit_seconds: float = ANSWER_SECONDS) -> ProbeResult:
    return ask_all([address], limit_seconds)[address]


@contextlib.contextmanager
def kept_probe(address: str) -> Iterator[Callable[[], ProbeResult]]:
    """A `probe` of one server that keeps its connection until the context ends."""

    async def connect() -> grpc.aio.Channel:
        return _channel(address, ANSWER_SECONDS)

    channel = _result(connect())
    try:
        yield lambda: _result(_ask(address, channel, ANSWER_SECONDS))
    finally:
        _result(channel.close())


async def _ask(address: str, channel: grpc.aio.Channel, limit_seconds: float) -> ProbeResult:
    """Asks a server, once more if the first result may mislead."""
    is_second = False
    while True:
        since, when = time.monotonic(), time.time()
        seen, identity = await _answer(channel, limit_seconds)
        # A process that ends cuts off whom it has accepted, and from then on refuses. And it may be
        # this process that was stopped, not the one that was asked.
        was_stopped = time.monotonic() - since > limit_seconds + _LATE_SECONDS
        if is_second or not (seen is Liveness.FOREIGN or was_stopped):
            return ProbeResult(address, seen, since, when, identity)
        is_second = True
        await asyncio.sleep(_AGAIN_SECONDS)


async def _answer(
    channel: grpc.aio.Channel, limit_seconds: float
) -> tuple[Liveness, ServerIdentity | None]:
    """What a server says of itself; one that computes on all its threads may say nothing."""
    try:
        status = await channel.unary_unary(_GET_STATUS)(b"", timeout=limit_seconds / 2)
    except grpc.RpcError as error:
        seen = _seen(error)
        if seen is Liveness.SILENT:
            seen = await _is_there(channel, limit_seconds / 2)
        return seen, None
    identity = ServerIdentity.parse(status)
    return Liveness.ANSWERS if identity else Liveness.FOREIGN, identity


async def _is_there(channel: grpc.aio.Channel, limit_seconds: float) -> Liveness:
    """Asks for what no server has: gRPC's own threads refuse that, whatever the others do."""
    try:
        await channel.unary_unary(_NO_METHOD)(b"", timeout=limit_seconds)
    except grpc.RpcError as error:
        is_there = error.code() is grpc.StatusCode.UNIMPLEMENTED
        return Liveness.ANSWERS if is_there else _seen(error)
    return Liveness.FOREIGN


def _seen(error: grpc.RpcError) -> Liveness:
    """What the error of a call shows."""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Liveness.SILENT
    if error.code() is not grpc.StatusCode.UNAVAILABLE:
        return Liveness.FOREIGN
    details = error.details() or ""
    return next((seen for text, seen in _WORDINGS if text in details), Liveness.UNREACHABLE)


def _channel(address: str, limit_seconds: float) -> grpc.aio.Channel:
    """A connection that is made when it is first used, and again whenever it is lost."""
    before_limit_ms = int(800 * limit_seconds)  # so that a failure has a reason
    return grpc.aio.insecure_channel(
        address,
        options=[
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.http2.bdp_probe", 0),  # a PING with each answer, for the sake of large ones
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.min_reconnect_backoff_ms", before_limit_ms),  # the limit of one attempt
            ("grpc.dns_ares_query_timeout", before_limit_ms),
            ("grpc.dns_min_time_between_resolutions_ms", int(1000 * _RESOLVE_SECONDS)),
            # Without it the next option, the time until the kernel gives a connection up, has no
            # effect. gRPC's servers hang up on who sends more than a few of these PINGs.
            ("grpc.keepalive_time_ms", 3_600_000),
            ("grpc.keepalive_timeout_ms", USER_TIMEOUT_MS),
        ],
    )


_starting = threading.Lock()


def _result(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Runs a coroutine in the loop of all probers here; gRPC's asyncio interface expects one."""
    with _starting:
        loop = _loop()
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="prober", daemon=True).start()
    return loop
