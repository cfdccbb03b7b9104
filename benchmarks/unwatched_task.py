"""`trainer.task` whose run nobody watches: no history, curves, page, or report of what tasks take.

`cloud.local --module=benchmarks.unwatched_task` starts it, for `benchmarks.suite` to measure what
watching costs.
"""

import runpy
import threading

WATCHING = ("run-recorder", "usage-report")  # threads of their own


class ThreadUnlessWatching(threading.Thread):
    """A thread that never runs where all it does is to keep what is seen of the run."""

    def start(self) -> None:
        """Starts it, if it is another one."""
        if self.name not in WATCHING:
            super().start()

    def join(self, timeout: float | None = None) -> None:
        """Waits for it, if it was started."""
        if self.name not in WATCHING:
            super().join(timeout)


if __name__ == "__main__":
    # Those who start the threads load TensorFlow, which must wait for the role's environment.
    threading.Thread = ThreadUnlessWatching
    runpy.run_module("trainer.task", run_name="__main__", alter_sys=True)
