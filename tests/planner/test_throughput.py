"""How fast clusters are expected to be, compared with a simulation and with what must be so."""

import heapq
import math
import random

import pytest

from tfps.job_dir.size import Size
from tfps.planner import throughput
from tfps.planner.throughput import Machine, Machines, StepCosts, forecast, with_own_seconds

COSTS = StepCosts(
    examples=512,
    worker_cpu=0.012,
    ps_cpu=0.006,
    chief_cpu=0.0005,
    pulled_bytes=400e3,
    pushed_bytes=300e3,
    own_seconds=0.02,
)
LINE = 125e6
OWN = Machines(Machine(2, LINE), Machine(4, LINE), Machine(2, LINE))
SHARED = Machines.shared(Machine(2))


def simulated(workers, own, queues, steps=60_000):
    """Seconds of a step where all times are drawn from exponential distributions."""
    draw = random.Random(1)
    free = [0.0] * len(queues)  # when each has served all that have come
    events = [(draw.expovariate(1 / own), number, 0) for number in range(workers)]
    heapq.heapify(events)
    done = 0
    while done < steps:
        now, number, place = heapq.heappop(events)
        if place < len(queues):
            free[place] = max(now, free[place]) + draw.expovariate(1 / queues[place])
            heapq.heappush(events, (free[place], number, place + 1))
            continue
        done += 1
        heapq.heappush(events, (now + draw.expovariate(1 / own), number, 0))
    return workers * now / done


@pytest.mark.parametrize("workers", [1, 2, 5, 20])
def test_a_step_takes_what_a_simulation_says(workers):
    result = forecast(COSTS, Size(workers, 1), OWN)
    queues = 0.006 / 2, 0.0005 / 2, 400e3 / LINE, 300e3 / LINE
    expected = simulated(workers, 0.02, queues)
    assert result.step_seconds == pytest.approx(expected, rel=0.02)
    assert result.examples_per_second == pytest.approx(512 * workers / result.step_seconds)


def test_one_worker_waits_for_nobody():
    alone = forecast(COSTS, Size(1, 1), SHARED)
    assert alone.step_seconds == pytest.approx(0.02 + (0.012 + 0.006 + 0.0005) / 2)
    assert alone.bound == throughput.WORKER


@pytest.mark.parametrize(
    ("costs", "machines", "bound", "most"),
    [
        (COSTS, SHARED, throughput.CORES, 2 / 0.0185),
        (COSTS, OWN._replace(ps=Machine(2)), throughput.PS, 2 / 0.006),
        (COSTS, OWN, throughput.PULLS, LINE / 400e3),
    ],
)
def test_many_workers_are_as_fast_as_what_they_share(costs, machines, bound, most):
    many = forecast(costs, Size(200, 1), machines)
    assert many.examples_per_second == pytest.approx(512 * most, rel=1e-3)
    assert many.bound == bound
    assert many.busy[bound] == pytest.approx(1.0, abs=1e-3)


def test_more_ps_share_what_is_sent_and_computed():
    one = forecast(COSTS, Size(50, 1), OWN)
    four = forecast(COSTS, Size(50, 4), OWN)
    assert four.examples_per_second > 3 * one.examples_per_second


@pytest.mark.parametrize("size", [Size(1, 1), Size(2, 2)])
@pytest.mark.parametrize("machines", [OWN, SHARED._replace(worker=Machine(4))])
def test_a_measured_step_says_what_is_the_workers_own(size, machines):
    measured = forecast(COSTS, size, machines)
    known = with_own_seconds(
        StepCosts(**{**vars(COSTS), "own_seconds": 0.0}), size, machines, measured.step_seconds
    )
    assert known.own_seconds == pytest.approx(0.02, rel=1e-6)


def test_what_is_busy_all_the_time_hides_the_workers_own_part():
    full = forecast(COSTS, Size(20, 1), SHARED)
    assert full.busy[throughput.CORES] > 0.95
    assert with_own_seconds(COSTS, Size(20, 1), SHARED, full.step_seconds).own_seconds == 0


def test_messages_to_more_ps_cost_both_ends():
    more = COSTS.with_other_ps(1, 3)
    assert more.worker_cpu > COSTS.worker_cpu
    assert more.ps_cpu - COSTS.ps_cpu == pytest.approx(more.worker_cpu - COSTS.worker_cpu)
    assert more.with_other_ps(3, 1).ps_cpu == pytest.approx(COSTS.ps_cpu)
    fewer = COSTS.with_other_ps(1000, 1)  # there is no step that takes nothing
    assert fewer.ps_cpu > 0
    assert fewer.worker_cpu > 0


def test_on_a_machine_of_its_own_a_worker_computes_by_itself():
    moved = COSTS.moved(1, SHARED, OWN)
    assert moved.own_seconds == pytest.approx(0.02 + 0.012 / 2 + 0.006 / 2)
    alone = forecast(moved, Size(1, 1), OWN)
    assert alone.examples_per_second < forecast(COSTS, Size(1, 1), SHARED).examples_per_second
    slow = OWN._replace(worker=Machine(4, LINE / 10))
    assert COSTS.moved(1, SHARED, slow).own_seconds == pytest.approx(
        moved.own_seconds + 700e3 / (LINE / 10) - 700e3 / LINE
    )


@pytest.mark.parametrize("cores", [2, 4, 8, 32])
def test_a_step_takes_as_long_elsewhere_whatever_cores_the_measured_machine_had(cores):
    """16 ms, of which one core computes 12 for the worker and 2 for the ps."""
    before = Machines.shared(Machine(cores))
    costs = StepCosts(512, 0.012, 0.002, 0.0, 0.0, 0.0)
    measured = with_own_seconds(costs, Size(1, 1), before, 0.016)
    own = Machines(Machine(4), Machine(4), Machine(4))
    moved = forecast(measured.moved(1, before, own), Size(1, 1), own)
    assert moved.step_seconds == pytest.approx(0.016, rel=0.15)


def test_one_machine_behind_a_slow_line_waits_for_it():
    line = SHARED._replace(ps=Machine(2, LINE / 10))
    moved = COSTS.moved(1, SHARED, line)
    assert moved == COSTS
    longer = forecast(moved, Size(1, 1), line).step_seconds
    assert longer == pytest.approx(
        forecast(COSTS, Size(1, 1), SHARED).step_seconds + 700e3 / (LINE / 10)
    )


def test_fewer_cores_than_a_step_used_make_it_longer():
    busy = StepCosts(**{**vars(COSTS), "worker_cpu": 0.06})  # three cores for 20 ms
    before = OWN._replace(worker=Machine(4))
    assert busy.moved(1, before, before).own_seconds == pytest.approx(0.02)
    fewer = busy.moved(1, before, before._replace(worker=Machine(1)))
    assert fewer.own_seconds == pytest.approx(0.02 + 0.06 - 0.06 / 3)
    more = busy.moved(1, before, before._replace(worker=Machine(64)))
    assert more.own_seconds == pytest.approx(0.02)
    assert math.isfinite(more.own_seconds)
