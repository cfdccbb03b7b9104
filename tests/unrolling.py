"""Loops of closures with other numbers of steps in an iteration than a job of its length has."""

from trainer.chief import engine


def set_to(steps: int) -> None:
    """Lets each iteration of a closure's loop train so many steps, one at a time for the rest.

    The ten of a long run on a cluster are most of what it costs to make the graphs of a small job.

    Args:
        steps: How many.
    """
    engine.UNROLL = engine.UNROLL_IN_ONE_PROCESS = steps
    as_in_long_runs()


def as_in_long_runs() -> None:
    """Lets each iteration train as many steps as in a run of very many updates."""
    engine.UPDATES_PER_COPY = 1
