"""A closure that fails on every worker of a cluster, all of which live."""

import pathlib
import time

import pytest
from cluster_process import local_cluster, trainer_flags
from datasets_on_disk import Datasets

STALL = 300
SECONDS = 60  # a few on a quiet machine; the stall limit is far


@pytest.mark.slow
def test_a_model_that_no_worker_can_run_ends_the_run(
    datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    flags = trainer_flags(datasets.two_shards, tmp_path / "job", f"--stall_seconds={STALL}")
    with local_cluster(2, 1, [*flags, "--config=tests/out_of_reach.py"]) as cluster:
        cluster.see("connected to 2 workers")
        began = time.monotonic()
        cluster.see("error: training epoch 1: every worker fails in the same way")
        assert time.monotonic() - began < SECONDS
        assert cluster.finish() == 3, cluster.text
    [error, *_] = cluster.errors
    assert "/job:localhost/replica:0/task:0/device:CPU:0 unknown device; look whether" in error
    assert "Traceback" not in cluster.text
