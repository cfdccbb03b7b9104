import dataclasses

import pytest

import tfps
from tfps.cluster.spec import Cluster
from tfps.errors import UserError
from tfps.experiment.mode import (
    MODES,
    AllReduce,
    Async,
    Bounded,
    Local,
    LocalSGD,
    Sync,
    suited,
)

TWO_WORKERS = Cluster(("c:1",), ("w:1", "w:2"), ("p:1",))
TWO_REPLICAS = Cluster(("c:1",), ("w:1",))


def test_batches_that_a_lost_worker_has_not_recorded():
    assert Async().unrecorded_batches(pipeline_depth=2, sync_every=8) == 3
    assert Async(batches_per_exchange=4).unrecorded_batches(0, sync_every=8) == 4
    assert LocalSGD(sync_every=0).unrecorded_batches(0, sync_every=8) == 8
    assert Sync().unrecorded_batches(0, sync_every=8) == 0
    assert Bounded().unrecorded_batches(pipeline_depth=2, sync_every=8) == 1
    assert Local().unrecorded_batches(pipeline_depth=2, sync_every=8) == 3


def test_without_a_mode_it_is_what_suits_the_cluster():
    assert suited(None, TWO_WORKERS) == Async()
    assert suited(None, Cluster()) == Local()
    assert suited(None, TWO_REPLICAS) == AllReduce()
    assert suited(Sync(backup_workers=1), TWO_WORKERS) == Sync(backup_workers=1)


def test_bounded_by_nothing_is_run_as_sync_and_says_so(caplog):
    caplog.set_level("INFO")
    assert suited(Bounded(), TWO_WORKERS) == Bounded()
    assert not caplog.messages
    assert suited(Bounded(max_staleness=0, round_seconds=3), TWO_WORKERS) == Sync(round_seconds=3)
    assert caplog.messages == [
        "--mode.name=bounded with max_staleness=0 is --mode.name=sync, and runs as such"
    ]


@pytest.mark.parametrize(
    ("mode", "cluster", "message"),
    [
        (Async(), Cluster(), "--mode.name=async needs a cluster, but TF_CONFIG names none"),
        (Sync(), Cluster(), "--mode.name=sync needs a cluster, but TF_CONFIG names none"),
        (Local(), TWO_WORKERS, "--mode.name=local, but TF_CONFIG names a cluster"),
        (AllReduce(), Cluster(), "--mode.name=allreduce needs a cluster"),
        (AllReduce(), TWO_WORKERS, "trains without ps, but TF_CONFIG names 1; leave"),
        (Sync(), TWO_REPLICAS, "--mode.name=sync needs a ps, but TF_CONFIG names 1 workers and"),
        (Sync(backup_workers=2), TWO_WORKERS, "--mode.backup_workers=2 of 2 workers"),
    ],
)
def test_what_does_not_suit_a_cluster_is_refused(mode, cluster, message):
    with pytest.raises(UserError, match=message):
        suited(mode, cluster)


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        (Sync, {"backup_workers": -1}, "mode.backup_workers=-1 must be 0 or more"),
        (Bounded, {"max_staleness": -1}, "mode.max_staleness=-1 must be 0 or more"),
        (Async, {"staleness_power": -0.5}, "mode.staleness_power=-0.5 must be 0 or more"),
        (LocalSGD, {"sync_every": -1}, "mode.sync_every=-1 must be 0 or more"),
        (Async, {"batches_per_exchange": 0}, "mode.batches_per_exchange=0 must be 1 or more"),
        (Sync, {"round_seconds": 0.0}, "mode.round_seconds=0.0 must be positive"),
        (Bounded, {"round_seconds": 0.0}, "mode.round_seconds=0.0 must be positive"),
    ],
)
def test_settings_out_of_range_are_refused(kind, setting, message):
    with pytest.raises(UserError, match=message):
        kind(**setting)


def test_a_mode_has_its_own_settings_alone():
    for kind in MODES.values():
        own = {field.name for field in dataclasses.fields(kind)}
        for other in ("backup_workers", "max_staleness", "staleness_power", "sync_every"):
            if other not in own:
                with pytest.raises(TypeError, match=other):
                    kind(**{other: 1})


def test_what_is_no_mode_is_refused_with_those_that_there_are(tmp_path):
    for wrong in ("sync", tfps.Sync, {"name": "sync"}):
        with pytest.raises(UserError, match=r"it must be one of tfps\.Async\(\), tfps\.Sync\(\), "):
            tfps.Experiment("mine", task=None, mode=wrong)
