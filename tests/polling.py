"""A prober of tasks that are not there: what is seen of them is what a test says."""

import threading
import time

from tfps.cluster.liveness import ProbeResult


class Polling:
    """Asks a callable about each address, each in a thread of its own."""

    def __init__(self, addresses, probe, interval_seconds=0.01):
        self._addresses = addresses
        self._probe = probe
        self._interval = interval_seconds
        self._stop = threading.Event()
        self._threads = []
        self.reported_until = 0.0

    def start(self, on_result):
        if not self._threads:
            for address in self._addresses.values():
                thread = threading.Thread(target=self._run, args=(address, on_result), daemon=True)
                self._threads.append(thread)
                thread.start()

    def stop(self):
        self._stop.set()

    def _run(self, address, on_result):
        while not self._stop.wait(self._interval):
            since, when = time.monotonic(), time.time()
            on_result(ProbeResult(address, self._probe(address), since, when))
            self.reported_until = time.monotonic()
