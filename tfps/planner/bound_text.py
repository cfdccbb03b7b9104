"""What bounded a run, and what one more task would give, as a sentence."""

from tfps.job_dir.size import Size
from tfps.planner.measured_run import MeasuredRun
from tfps.planner.throughput import CHIEF, CORES, PS, PULLS, PUSHES, Forecast

_SHARED = {
    CORES: "the cores of their machine",
    PS: "the ps",
    PULLS: "the network of the ps, with what is pulled,",
    PUSHES: "the network of the ps, with what is pushed,",
    CHIEF: "the chief",
}


def bound(run: MeasuredRun, expected: Forecast) -> str:
    """What bounds a cluster, for people."""
    if expected.bound in _SHARED:
        busy = expected.busy[expected.bound]
        return f"{_SHARED[expected.bound]}, busy {busy:.0%} of the time"
    computing = run.costs.worker_cpu / expected.step_seconds
    if computing < 0.5:
        return "the workers' own steps, which wait more than they compute"
    return "the workers' own steps"


def sentence(run: MeasuredRun) -> str:
    """What bounded a run, and what one more worker or ps on such a machine would give."""
    workers, ps = run.size
    now = run.forecast(run.size)
    worker = _change(run, Size(workers + 1, ps), now)
    another = _change(run, Size(workers, ps + 1), now)
    what = bound(run, now)
    return (
        f"{what[0].upper()}{what[1:]}: that bounds {run.size} at {run.examples_per_second:,.0f} "
        f"examples/s. One more worker would give about {worker}, one more ps {another}"
    )


def _change(run: MeasuredRun, size: Size, now: Forecast) -> str:
    part = run.forecast(size).examples_per_second / now.examples_per_second - 1
    return f"{abs(part):.0%} {'more' if part >= 0 else 'fewer'}"
