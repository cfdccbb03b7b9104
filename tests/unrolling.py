"""Loops of closures with few steps in an iteration, for jobs that are short."""

from trainer.chief import engine


def shorten(steps: int) -> None:
    """Lets each iteration of a closure's loop train so many steps, one at a time for the rest.

    The ten of a cluster are most of what it costs to make the graphs of a small job;
    tests/integration/test_modes.py has them.

    Args:
        steps: How many.
    """
    engine.UNROLL = engine.UNROLL_IN_ONE_PROCESS = steps
