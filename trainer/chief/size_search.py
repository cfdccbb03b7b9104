"""Which number of workers and ps a run tries next, by the sizes that it has measured."""

import itertools
from collections.abc import Mapping

from tfps.job_dir.size import Size
from trainer.chief.wait_limits import Autoscale

# A worker or ps is worth it that brings so much of what each of the fewest workers does. Of several
# together the last may bring less: they are good where they bring all but some, or are few for
# their number.
_WORTH, _FULL, _FINE = 0.4, 0.85, 8


def next_size(speeds: Mapping[Size, float], now: Size, limits: Autoscale) -> Size:
    """The size to have next, by the examples per second of those that were tried.

    Workers are chosen first. More ps are tried with the first number of workers that brought too
    little, else with all; where the ps pay, more workers may. The answer is one of `speeds` where
    nothing is left to try.
    """
    if not limits.most_ps:
        tried = _with_ps(speeds, now.ps)
        return Size(next_workers(tried, limits.least, limits.most), now.ps)
    numbers = sorted({size.ps for size in speeds if 0 < size.ps <= max(limits.most_ps, now.ps)})
    good, least = numbers[0], limits.least
    each = _of_fewest(_with_ps(speeds, good))
    while True:
        tried = _with_ps(speeds, good)
        workers = next_workers(tried, least, limits.most, each)
        if workers not in tried:
            return Size(workers, good)
        compared = min((number for number in tried if number > workers), default=workers)
        above = next((number for number in numbers if number > good), None)
        if above is None:
            if good >= limits.most_ps:
                return Size(workers, good)
            return Size(compared, min(limits.most_ps, 2 * good))
        more = Size(compared, above)
        if more not in speeds:
            return more
        if speeds[more] - tried[compared] >= (above - good) * _WORTH * each:
            good, least = above, workers
        elif above - good > 1:
            return Size(compared, (good + above) // 2)
        else:
            return Size(workers, good)


def next_workers(
    speeds: Mapping[int, float], least: int, most: int, each: float | None = None
) -> int:
    """The number to have next, by the examples per second of those that were tried.

    A good number is doubled, and what lies between a good one and the next that was tried is
    halved, so that few are tried. The answer is one of `speeds` where nothing is left to try.
    `each` is what a worker brings at best, None for what each of the fewest does.
    """
    tried = sorted(number for number in speeds if least <= number <= most)
    if not tried:
        return min(most, max(least, min(speeds)))
    each = each or speeds[tried[0]] / tried[0]
    gains = {
        number: (speeds[number] - speeds[lower]) / (number - lower) / each
        for lower, number in itertools.pairwise(tried)
    }
    good = tried[0]
    for lower, number in itertools.pairwise(tried):
        if gains[number] >= _FULL or (
            gains[number] >= _WORTH and number - lower <= max(1, number // _FINE)
        ):
            good = number
    above = next((number for number in tried if number > good), None)
    has_end = good == most if above is None else gains[above] < _WORTH
    if good == tried[0] > least and has_end:  # whether all of these bring something is not known
        return max(least, good // 2)
    if above is None:
        return min(most, 2 * good)
    return (good + above) // 2


def _with_ps(speeds: Mapping[Size, float], ps: int) -> dict[int, float]:
    return {size.workers: speed for size, speed in speeds.items() if size.ps == ps}


def _of_fewest(speeds: Mapping[int, float]) -> float:
    return speeds[min(speeds)] / min(speeds)
