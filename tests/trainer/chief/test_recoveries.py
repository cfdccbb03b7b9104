import pytest

from tfps.errors import RunError
from tfps.job_dir.report import ReportedRecovery
from trainer.chief.state import Recoveries


def test_a_recovery_lasts_from_the_loss_to_the_next_trained_batch(clock):
    recoveries = Recoveries()
    recoveries.restored(0)
    assert recoveries.trained(800) is None
    clock.now = 110.0
    recoveries.begin("ps 0 was lost")
    recoveries.restored(500)
    clock.now = 117.0
    assert recoveries.trained(500) is None  # where it was restored
    assert recoveries.made[0].seconds is None
    assert recoveries.trained(516) == 7.0
    assert recoveries.trained(532) is None
    assert recoveries.made == [
        ReportedRecovery(what="ps 0 was lost", when=110.0, records=300, seconds=7.0)
    ]


def test_losses_without_a_batch_between_them_end_the_run():
    recoveries = Recoveries()
    for _ in range(5):
        recoveries.begin("ps 0 was lost")
        recoveries.restored(0)
    with pytest.raises(RunError, match="ps 0 was lost, as 5 times before without a batch trained"):
        recoveries.begin("ps 0 was lost")


def test_a_trained_batch_gives_new_attempts():
    recoveries = Recoveries()
    for number in range(12):
        recoveries.begin("ps 1 was lost")
        recoveries.restored(number)
        recoveries.trained(number + 1)
    assert len(recoveries.made) == 12
