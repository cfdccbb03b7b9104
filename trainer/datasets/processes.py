"""Spreads work over processes and hands the results back in order."""

import collections
import concurrent.futures
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Self, TypeVar

from tfps.errors import RunError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AHEAD = 2  # items per process that are given out before a result is asked for

# So much is read sooner by this process than another one has loaded TensorFlow.
_BYTES_PER_PROCESS = 16 << 20


def worthwhile(most: int, size: int) -> int:
    """How many processes, at most so many, are worth their start for so many bytes."""
    return min(most, 1 + size // _BYTES_PER_PROCESS)


class Processes:
    """Processes that end with their context; one is this very process.

    They are forked by a server that has loaded TensorFlow once and never used it: threads and
    connections of this process cannot hang in them.
    """

    def __init__(self, count: int, *modules: str):
        """Starts nothing yet: processes start with the first items.

        Args:
            modules: What the server loads: that of the work, and what else the work needs.
        """
        self._count = count
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None
        if count > 1:
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(["trainer.console.quiet_tensorflow", *modules])
            self._pool = concurrent.futures.ProcessPoolExecutor(
                count, context, _end_when_interrupted
            )

    def map(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item]
    ) -> Iterator[_Result]:
        """The results of all items, in their order.

        Args:
            function: Of a module; its argument and result are pickled.
            items: Asked for as processes become free, not all at once.
        """
        if self._pool is None:
            yield from map(function, items)
            return
        waiting: collections.deque[concurrent.futures.Future[_Result]] = collections.deque()
        try:
            for item in items:
                waiting.append(self._pool.submit(function, item))
                if len(waiting) >= _AHEAD * self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise RunError(
                "a process ended unexpectedly, perhaps for lack of memory; try fewer --processes"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _end_when_interrupted() -> None:
    """Lets an interrupt from the terminal, which all processes get, end them without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
