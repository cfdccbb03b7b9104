"""The cheapest cluster that is fast enough, each task on a machine of its own."""

from collections.abc import Sequence
from typing import NamedTuple

from tfps.job_dir.size import Size
from tfps.planner.machine_prices import MachineType
from tfps.planner.measured_run import MeasuredRun
from tfps.planner.memory import PROCESS_BYTES, WORKING_BYTES
from tfps.planner.throughput import Forecast, Machines

_MOST_WORKERS = 256
_COUNTS_OF_PS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_ROOM = 1.25  # times the memory that was measured


class Offer(NamedTuple):
    """A cluster, how fast it is expected to be, and what it costs."""

    chief: MachineType
    worker: MachineType
    ps: MachineType
    forecast: Forecast
    off: float  # by which part of it the forecast may be wrong

    @property
    def size(self) -> Size:
        return self.forecast.size

    @property
    def price(self) -> float:
        """Of an hour."""
        tasks = self.size.workers * self.worker.price + self.size.ps * self.ps.price
        return self.chief.price + tasks


def ps_bytes(run: MeasuredRun, ps: int) -> int:
    """Memory of a ps where so many share the tables; at least what one of the run had besides."""
    copies = 2 if run.in_background else 1
    rest = run.memory_bytes.get("ps", 0) - copies * run.table_bytes / run.size.ps
    own = max(rest, PROCESS_BYTES + WORKING_BYTES)
    return int(own + copies * run.table_bytes / ps)


def offers(
    run: MeasuredRun, types: Sequence[MachineType], examples_per_second: float
) -> list[Offer]:
    """For each type of worker the cheapest cluster of that speed, the cheapest first."""
    chiefs = _that_hold(types, run.memory_bytes.get("chief", 0) * _ROOM)
    workers = _that_hold(types, run.memory_bytes.get("worker", 0) * _ROOM)
    if not chiefs or not workers:
        return []
    by_cpus = {each.machine.cpus: each for each in sorted(chiefs, key=_price, reverse=True)}
    found = []
    for worker in workers:
        for chief in sorted(by_cpus.values(), key=_price):  # a larger one where it is the bound
            if offer := _cheapest(run, types, chief, worker, examples_per_second):
                found.append(offer)
                break
    return sorted(found, key=lambda offer: offer.price)


def _price(each: MachineType) -> float:
    return each.price


def _cheapest(
    run: MeasuredRun,
    types: Sequence[MachineType],
    chief: MachineType,
    worker: MachineType,
    examples_per_second: float,
) -> Offer | None:
    """The cheapest cluster of that speed with workers of one type; None where none is so fast."""
    best: Offer | None = None
    for count in _COUNTS_OF_PS:
        for ps in _that_hold(types, ps_bytes(run, count) * _ROOM):
            least = chief.price + worker.price + count * ps.price
            if best and least >= best.price:
                continue
            machines = Machines(chief.machine, worker.machine, ps.machine)
            workers = _least_workers(run, count, machines, examples_per_second)
            if workers is None:
                continue
            size = Size(workers, count)
            forecast = run.forecast(size, machines)
            offer = Offer(chief, worker, ps, forecast, run.may_be_off(size, machines))
            if best is None or offer.price < best.price:
                best = offer
    return best


def _least_workers(
    run: MeasuredRun, ps: int, machines: Machines, examples_per_second: float
) -> int | None:
    """The least number that reaches a speed; None where no number does."""

    def reaches(workers: int) -> bool:
        expected = run.forecast(Size(workers, ps), machines).examples_per_second
        return expected >= examples_per_second

    if not reaches(_MOST_WORKERS):
        return None
    low, high = 0, _MOST_WORKERS  # more workers are never slower
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


def _that_hold(types: Sequence[MachineType], memory_bytes: float) -> list[MachineType]:
    return [each for each in types if each.memory_bytes >= memory_bytes]
