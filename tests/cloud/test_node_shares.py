"""How a job's tasks are spread over machines."""

import pytest

from cloud.node.shares import Shares


@pytest.mark.parametrize(
    ("shares", "workers", "ps"),
    [
        (Shares(1, 2, 1), [2], [1]),
        (Shares(3, 3, 3), [1, 1, 1], [1, 1, 1]),
        (Shares(3, 4, 2), [1, 1, 2], [0, 1, 1]),
        (Shares(2, 3, 0), [1, 2], [0, 0]),
        (Shares(4, 2, 5), [0, 0, 1, 1], [1, 2, 1, 1]),
    ],
)
def test_what_is_left_over_is_not_on_the_first_machine(shares, workers, ps):
    counts = [shares.counts(rank) for rank in range(shares.nodes)]
    assert [each["worker"] for each in counts] == workers
    assert [each["ps"] for each in counts] == ps
    assert [each["chief"] for each in counts] == [1] + [0] * (shares.nodes - 1)


def test_each_task_is_of_one_machine_in_the_order_of_these():
    shares = Shares(5, 7, 3)
    for job, total in {"chief": 1, "worker": 7, "ps": 3}.items():
        found = [index for rank in range(5) for index in shares.indices(rank)[job]]
        assert found == list(range(total))
