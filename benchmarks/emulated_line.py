"""Runs a cluster whose ps is behind a slow line: `python -m benchmarks.emulated_line … -- FLAGS`.

Only as root of a network namespace of one's own (`unshare --map-root-user --net`). The tasks know
each other by an address that is nobody's: a TUN device gets their packets, and this process gives
them back with sender and receiver exchanged, so that they arrive from that address: when the line
would have brought them. The line is the ps's, with a rate each way; the delay is the same for all.
Linux's own emulation of delays, netem, is missing in many kernels.
"""

import argparse
import collections
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.datasets import ROOT
from benchmarks.suite import stop
from cloud.local.ports import Ports

_OWN, _OTHER = "10.77.0.1", "10.77.0.2"
_SET_INTERFACE, _TUN, _WITHOUT_HEADER = 0x400454CA, 0x0001, 0x1000  # of linux/if_tun.h
_DEVICE = "line0"
_LARGEST = 65_535  # bytes of a packet: one costs this process as much as a small one
_SENDER, _RECEIVER, _END = 12, 16, 20  # where the addresses lie in a packet


class Line:
    """Brings packets after one another, at a rate, and each a while later."""

    def __init__(self, bits_per_second: float, delay: float):
        self._seconds_per_byte = 8 / bits_per_second
        self._delay = delay
        self._free = 0.0
        self._packets: collections.deque[tuple[float, bytes]] = collections.deque()

    def take(self, packet: bytes, now: float) -> None:
        """Takes a packet at a time."""
        self._free = max(now, self._free) + len(packet) * self._seconds_per_byte
        self._packets.append((self._free + self._delay, packet))

    @property
    def next(self) -> float:
        """When the next packet is brought; infinite without one."""
        return self._packets[0][0] if self._packets else float("inf")

    def bring(self, now: float) -> Iterator[bytes]:
        """What has come by a time."""
        while self.next <= now:
            yield self._packets.popleft()[1]


def main() -> int:
    """Runs the cluster; returns the chief's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gbits", type=float, required=True, help="of the ps, each way")
    parser.add_argument("--delay_ms", type=float, default=0.5, help="of a packet, one way")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("flags", nargs="+", help="of trainer.task, after --")
    flags = parser.parse_args()
    # So that the tasks end, too, which nobody else would end: none reaches another without this.
    signal.signal(signal.SIGTERM, stop)
    device = opened()
    with Ports(2 + flags.workers) as ports:
        names = ["chief", "ps", *["worker"] * flags.workers]
        cluster: dict[str, list[str]] = {}
        for job, port in zip(names, ports.numbers, strict=True):
            cluster.setdefault(job, []).append(f"{_OTHER}:{port}")
        with started(cluster, flags.flags) as chief:
            of_workers = ports.numbers[2:]
            return relay(device, chief, ports.numbers[1], of_workers, flags.gbits, flags.delay_ms)


def opened() -> int:
    """The TUN device, which has the route to the address that the tasks know."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(
        device, _SET_INTERFACE, struct.pack("16sH", _DEVICE.encode(), _TUN | _WITHOUT_HEADER)
    )
    for command in (
        "link set lo up",
        f"link set {_DEVICE} mtu {_LARGEST} txqueuelen 10000 up",
        f"address add {_OWN}/24 dev {_DEVICE}",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    return device


@contextlib.contextmanager
def started(
    cluster: dict[str, list[str]], flags: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A cluster's tasks, which end on leaving; yields the chief, which prints where this does."""
    processes = []
    try:
        for job in ("ps", "worker", "chief"):
            for index in range(len(cluster[job])):
                own = {"cluster": cluster, "task": {"type": job, "index": index}}
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "trainer.task", *flags],
                        cwd=ROOT,
                        env={**os.environ, "TF_CONFIG": json.dumps(own)},
                        stdin=subprocess.DEVNULL,
                        stdout=None if job == "chief" else subprocess.DEVNULL,
                        # Where the trainer says how far it is.
                        stderr=subprocess.STDOUT if job == "chief" else None,
                    )
                )
        yield processes[-1]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def relay(
    device: int,
    chief: subprocess.Popen[bytes],
    ps: int,
    workers: Sequence[int],
    gbits: float,
    delay_ms: float,
) -> int:
    """Brings packets until the chief ends; returns its exit code.

    Args:
        device: The TUN device.
        chief: Its process.
        ps: The ps's port.
        workers: The workers' ports. What is sent from them goes to the ps, and what is sent to them
            comes from it, but for the chief's calls, which are few.
        gbits: The rate of the ps's line each way.
        delay_ms: For every packet.
    """
    to_ps, from_ps = (Line(gbits * 1e9, delay_ms / 1e3) for _ in range(2))
    others = Line(float("inf"), delay_ms / 1e3)
    lines, of_workers = (to_ps, from_ps, others), set(workers)
    while (code := chief.poll()) is None:
        wait = min(line.next for line in lines) - time.monotonic()
        select.select([device], [], [], min(max(0.0, wait), 1.0))
        for packet, sender, receiver in received(device):
            line = others
            if receiver == ps or sender in of_workers:
                line = to_ps
            elif sender == ps or receiver in of_workers:
                line = from_ps
            line.take(packet, time.monotonic())
        now = time.monotonic()
        for line in lines:
            for packet in line.bring(now):
                os.write(device, packet)
    return code


def received(device: int) -> Iterator[tuple[bytes, int, int]]:
    """TCP packets that wait, answered: with the ports of who sent and who is to have them."""
    with contextlib.suppress(BlockingIOError):  # no more wait
        while True:
            packet = bytearray(os.read(device, _LARGEST))
            if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_TCP:
                continue  # what the kernel itself says on a new device
            addresses = packet[_SENDER:_RECEIVER], packet[_RECEIVER:_END]
            # A checksum is a sum: it stays right.
            packet[_RECEIVER:_END], packet[_SENDER:_RECEIVER] = addresses
            sender, receiver = struct.unpack_from("!HH", packet, (packet[0] & 15) * 4)
            yield bytes(packet), sender, receiver


if __name__ == "__main__":
    sys.exit(main())
