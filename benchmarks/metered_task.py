"""`trainer.task` that says what the threads take which keep what is seen of its run.

    python -m cloud.local --workers=2 --ps=1 --module=benchmarks.metered_task -- --config=…

Every 10 seconds each task writes a line to its log: CPU-seconds of those threads, and of all.
"""

import os
import runpy
import sys
import threading
import time

from benchmarks.unwatched_task import WATCHING

_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


class MeteredThread(threading.Thread):
    """A thread that is measured where all it does is to keep what is seen of the run."""

    def start(self) -> None:
        """Starts it, and what measures it."""
        super().start()
        if self.name in WATCHING:
            threading.Thread(target=self._tell, name="meter", daemon=True).start()

    def _tell(self) -> None:
        while True:
            time.sleep(_SECONDS)
            mine, all_of_it = cpu_seconds(self.native_id), time.process_time()
            print(f"{self.name}: {mine:.2f} of {all_of_it:.2f} CPU-s", file=sys.stderr, flush=True)


def cpu_seconds(thread: int | None) -> float:
    """What a thread of this process has taken."""
    with open(f"/proc/self/task/{thread}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    threading.Thread = MeteredThread
    runpy.run_module("trainer.task", run_name="__main__", alter_sys=True)
