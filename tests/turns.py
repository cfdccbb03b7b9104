"""Turns of a closure's loop that train few steps, for jobs that are short."""

import functools

from tfps.worker.closures import Closures


def shorten(steps: int) -> None:
    """Lets each turn of a closure's loop train so many steps, one at a time for the rest.

    The ten of `Closures` are most of what it costs to make the graphs of a small job;
    tests/integration/test_modes.py has them.
    """
    Closures.__init__ = functools.partialmethod(Closures.__init__, unroll=steps)  # type: ignore
