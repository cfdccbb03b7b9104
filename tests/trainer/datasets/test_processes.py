import os

import pytest

from tfps.errors import RunError
from trainer.datasets.shard_scan import Processes, worthwhile


@pytest.mark.slow
def test_results_come_in_order_from_several_processes() -> None:
    with Processes(2, "math") as pool:
        assert list(pool.map(str, range(50))) == [str(number) for number in range(50)]
        assert os.getpid() not in set(pool.map(_process, range(10)))


def test_one_process_is_this_one() -> None:
    with Processes(1, "math") as pool:
        assert list(pool.map(_process, range(3))) == [os.getpid()] * 3


@pytest.mark.slow
def test_a_process_that_dies_is_told() -> None:
    with Processes(2, "math") as pool, pytest.raises(RunError, match="fewer --processes"):
        list(pool.map(os._exit, [3]))


def test_little_data_is_not_worth_a_process() -> None:
    assert [worthwhile(4, size << 20) for size in (0, 15, 17, 1000)] == [1, 1, 2, 4]


def _process(_: int) -> int:
    return os.getpid()
