import pytest

from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.experiment.mode import Mode

TWO_REPLICAS = Cluster(("c:1",), ("a:1",))
TWO_WORKERS = Cluster(("c:1",), ("a:1", "b:1"), ("p:1",))


def test_what_a_lost_worker_may_have_pushed_without_recording_it():
    assert Mode("async").unrecorded_batches(pipeline_depth=2, sync_every=8) == 3
    assert Mode("async", batches_per_exchange=4).unrecorded_batches(0, sync_every=8) == 4
    assert Mode("local_sgd", sync_every=0).unrecorded_batches(0, sync_every=8) == 8
    assert Mode("sync").unrecorded_batches(0, sync_every=8) == 0
    assert Mode("bounded").unrecorded_batches(pipeline_depth=2, sync_every=8) == 1


def test_without_a_name_the_cluster_decides():
    assert Mode().on(TWO_WORKERS).name == "async"
    assert Mode().on(Cluster()).name == "local"
    assert Mode().on(TWO_REPLICAS).name == "allreduce"
    assert Mode("sync", backup_workers=1).on(TWO_WORKERS).backup_workers == 1


def test_bounded_by_nothing_is_run_as_sync_and_says_so(caplog):
    caplog.set_level("INFO")
    assert Mode("bounded").on(TWO_WORKERS).name == "bounded"
    assert not caplog.messages
    assert Mode("bounded", max_staleness=0).on(TWO_WORKERS).name == "sync"
    assert caplog.messages == [
        "--mode=bounded with --max_staleness=0 is --mode=sync, and runs as such"
    ]


@pytest.mark.parametrize(
    ("mode", "cluster", "message"),
    [
        (Mode("async"), Cluster(), "--mode=async needs a cluster, but TF_CONFIG names none"),
        (Mode("sync"), Cluster(), "--mode=sync needs a cluster, but TF_CONFIG names none"),
        (Mode("local"), TWO_WORKERS, "--mode=local, but TF_CONFIG names a cluster"),
        (Mode("allreduce"), Cluster(), "--mode=allreduce needs a cluster"),
        (Mode("allreduce"), TWO_WORKERS, "trains without ps, but TF_CONFIG names 1; leave"),
        (Mode("sync"), TWO_REPLICAS, "--mode=sync needs a ps, but TF_CONFIG names 1 workers and"),
        (Mode("async", backup_workers=1), TWO_WORKERS, "only --mode=sync has workers"),
        (Mode("sync", staleness_power=1.0), TWO_WORKERS, "only --mode=async has learning rates"),
        (Mode("sync", batches_per_exchange=4), TWO_WORKERS, "--batches_per_exchange=4: only"),
        (Mode("sync", backup_workers=2), TWO_WORKERS, "--backup_workers=2 of 2 workers"),
    ],
)
def test_what_does_not_suit_a_cluster_is_refused(mode, cluster, message):
    with pytest.raises(UserError, match=message):
        mode.on(cluster)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "sink"}, "mode.name=sink must be one of async, "),
        ({"backup_workers": -1}, "mode.backup_workers=-1 must be 0 or more"),
        ({"max_staleness": -1}, "mode.max_staleness=-1 must be 0 or more"),
        ({"staleness_power": -0.5}, "mode.staleness_power=-0.5 must be 0 or more"),
        ({"sync_every": -1}, "mode.sync_every=-1 must be at least 1, or 0 to be chosen"),
        ({"batches_per_exchange": 0}, "mode.batches_per_exchange=0 must be at least 1"),
        ({"round_seconds": 0.0}, "mode.round_seconds=0.0 must be positive"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        Mode(**settings)
