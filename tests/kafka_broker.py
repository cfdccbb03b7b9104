"""A Kafka broker on loopback, librdkafka's own test cluster, as a process that takes messages.

    python -m tests.kafka_broker TOPIC[,TOPIC]

It writes its address. Then each line that it reads is a message, `TOPIC PARTITION MILLISECONDS
VALUE`, made now where the milliseconds are 0, and each empty line asks it to say when all before
are there.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Self

from confluent_kafka import Producer

from tests.project import ROOT


class Broker:
    """Such a process; ends with the block."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka_broker", self.topic],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"kafka://{self._line()}/{self.topic}"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def send(
        self, partition: int, values: Sequence[str], topic: str = "", milliseconds: int = 0
    ) -> None:
        """Adds messages, which are there afterwards; made now, or at a time since 1970."""
        assert self._process.stdin is not None
        where = f"{topic or self.topic.split(',')[0]} {partition} {milliseconds}"
        lines = "".join(f"{where} {value}\n" for value in values)
        self._process.stdin.write(f"{lines}\n")
        self._process.stdin.flush()
        assert self._line() == "there"

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Stops the process: it takes connections, and does not answer."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def main(topics: str) -> None:
    # The addresses that are given are not used.
    producer = Producer({"bootstrap.servers": "x:1", "test.mock.num.brokers": 1, "log_level": 0})
    for topic in topics.split(","):
        [broker] = producer.list_topics(topic, timeout=60).brokers.values()
    print(f"{broker.host}:{broker.port}", flush=True)
    for line in sys.stdin:
        if line.strip():
            topic, partition, milliseconds, value = line.rstrip("\n").split(" ", 3)
            made = {"timestamp": int(milliseconds)} if int(milliseconds) else {}
            producer.produce(topic, value=value.encode(), partition=int(partition), **made)
            producer.poll(0)
        else:
            assert producer.flush(60) == 0
            print("there", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
