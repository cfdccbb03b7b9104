from tfps.coordinator.coordinator import WorkerShares
from tfps.job_dir.report import WorkerShare


def test_leases_count_for_the_worker_that_ended_them():
    shares = WorkerShares(range(3))
    shares.begin()
    shares.trained(2, records=100, began=10.0, seconds=5.0)
    shares.trained(0, records=30, began=10.0, seconds=1.0)
    shares.trained(2, records=100, began=15.25, seconds=4.0)
    assert shares.report() == [
        WorkerShare(leases=1, records=30, seconds=1.0, idle_seconds=0.0),
        WorkerShare(leases=0, records=0, seconds=0.0, idle_seconds=0.0),
        WorkerShare(leases=2, records=200, seconds=9.0, idle_seconds=0.25),
    ]


def test_nobody_is_idle_while_training_pauses():
    shares = WorkerShares([0])
    shares.begin()
    shares.trained(0, records=1, began=0.0, seconds=1.0)
    shares.begin()
    shares.trained(0, records=1, began=9.0, seconds=1.0)
    shares.trained(0, records=1, began=10.5, seconds=1.0)
    assert shares.report()[0].idle_seconds == 0.5
