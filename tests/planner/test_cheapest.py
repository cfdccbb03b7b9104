"""Which machines are chosen, and which price lists are refused."""

import dataclasses
import itertools
import pathlib

import pytest

from tests.planner.histories import run_of
from tfps.errors import UserError
from tfps.job_dir.size import Size
from tfps.planner import cheapest, machine_prices
from tfps.planner.measured_run import MeasuredRun
from tfps.planner.throughput import Machines

LIST = pathlib.Path("configs/machines.csv")
HEADER = "type,cpus,memory,network_gbit,price_per_hour\n"
RUN = MeasuredRun.of(run_of(workers=2))


def listed(tmp_path, text):
    file = tmp_path / "machines.csv"
    file.write_text(text)
    return machine_prices.read(str(file))


@pytest.mark.parametrize("wanted", [15_000, 100_000, 400_000])
def test_no_other_cluster_is_cheaper(wanted, tmp_path):
    lines = "s,2,4GiB,1,0.1\nm,4,8GiB,10,0.19\nl,16,16GiB,32,0.8\n"
    types = listed(tmp_path, HEADER + lines)
    found = cheapest.offers(RUN, types, wanted)
    assert [offer.price for offer in found] == sorted(offer.price for offer in found)
    assert all(offer.forecast.examples_per_second >= wanted for offer in found)
    best = min(
        0.1 + workers * worker.price + ps * of_ps.price
        for worker, of_ps in itertools.product(types, types)
        for workers, ps in itertools.product(range(1, 40), (1, 2, 3, 4, 6, 8))
        if RUN.forecast(
            Size(workers, ps), Machines(types[0].machine, worker.machine, of_ps.machine)
        ).examples_per_second
        >= wanted
    )
    assert found[0].price == pytest.approx(best)


def test_machines_that_hold_no_task_are_left_out(tmp_path):
    types = listed(tmp_path, f"{HEADER}tiny,64,512MiB,100,0.01\nlarge,4,16GiB,10,1\n")
    (offer,) = cheapest.offers(RUN, types, 1_000)
    assert {offer.chief.name, offer.worker.name, offer.ps.name} == {"large"}
    assert cheapest.offers(RUN, types[:1], 1_000) == []
    assert cheapest.offers(RUN, types, 1e12) == []


def test_a_chief_that_would_be_the_bound_has_more_cores(tmp_path):
    types = listed(tmp_path, f"{HEADER}small,1,8GiB,100,0.1\nlarge,64,8GiB,100,3\n")
    busy = dataclasses.replace(RUN, costs=dataclasses.replace(RUN.costs, chief_cpu=0.01))
    most_of_one_core = 512 / 0.01
    (offer, *_) = cheapest.offers(busy, types, most_of_one_core / 2)
    assert offer.chief.name == "small"
    (offer, *_) = cheapest.offers(busy, types, 2 * most_of_one_core)
    assert offer.chief.name == "large"


def test_the_list_that_comes_along_can_be_read():
    types = machine_prices.read(str(LIST))
    assert {"e2-standard-2", "n2-standard-8", "n2-highmem-16"} <= {each.name for each in types}
    by_price = sorted(types, key=lambda each: each.price)
    assert by_price[0].name == "e2-standard-2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its first line has no type"),
        ("type,cpus,memory\n", "its first line has no network_gbit"),
        (HEADER, "it has no machine"),
        (f"{HEADER},2,4GiB,1,1\n", "line 2: it has no type"),
        (f"{HEADER}a,2,4GiB,1,1\nb,none,4GiB,1,1\n", "line 3: cpus=none is no positive number"),
        (f"{HEADER}a,2,4GiB,1\n", "line 2: price_per_hour= is no positive number"),
        (f"{HEADER}a,2,4GiB,-1,1\n", "line 2: network_gbit=-1 is no positive number"),
        (f"{HEADER}a,2,4GiB,nan,1\n", "line 2: network_gbit=nan is no positive number"),
        (f"{HEADER}a,2,4,1,1\n", "line 2: memory=4: write a positive number and a unit"),
    ],
)
def test_a_list_that_says_something_else_is_refused(text, message, tmp_path):
    with pytest.raises(UserError) as raised:
        listed(tmp_path, text)
    assert message in str(raised.value)
    assert str(tmp_path) in str(raised.value)


def test_a_list_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"--machines=.*nowhere.csv: it cannot be read"):
        machine_prices.read(str(tmp_path / "nowhere.csv"))
