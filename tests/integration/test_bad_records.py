"""Runs that pass over bad records, and account for every record of every epoch."""

import os
import pathlib
import time
from typing import Any

import numpy as np
import pytest
from cluster_process import (
    PATIENCE,
    Program,
    checkpoints,
    local_cluster,
    read_report,
)
from counting_job import flags, trained

from tests import corruption, counting_task
from tfps.data.manifest import Manifest

SIZES, BATCH, EPOCHS = (3000, 2500, 2000, 20), 20, 2
RECORDS = sum(SIZES)
CORRUPT = {
    7: corruption.of_another_type,
    2999: corruption.without_a_feature,
    3000 + 1200: corruption.with_an_id_outside,
    5500 + 1999: corruption.without_a_feature,
    **dict.fromkeys(range(7500, 7520), corruption.without_a_feature),  # a whole batch
}
DAMAGED = 5500 + 11
BAD = {*CORRUPT, DAMAGED}
NO_PAYLOAD = "has no 'payload' (it has label, record)"
LISTED = [
    (0, 7, "holds integers in 'payload', not float32"),
    (0, 2999, NO_PAYLOAD),
    (1, 1200, "holds the id 1099511627776 in 'record', outside [0, 7520)"),
    (2, 11, "does not fit its checksum"),
    (2, 1999, NO_PAYLOAD),
    *((3, record, NO_PAYLOAD) for record in range(20)),
]


def corrupt_data(path: pathlib.Path, task: counting_task.CountingTask) -> Manifest:
    data = counting_task.write(path, task, SIZES, CORRUPT)
    corruption.flip(data.path_of(data.shards[2]), [11], corruption.DATA)
    return data


def assert_listed(report: dict[str, Any]) -> None:
    listed = [
        (entry["shard"], entry["record"], entry["records"], entry["reason"])
        for entry in report["bad_records"]
    ]
    assert listed == [(f"counted-{n:05}-of-00004.tfrecord", at, 1, why) for n, at, why in LISTED]


def exact(repeated: int = 0) -> dict[str, int]:
    good, bad = RECORDS - len(BAD), len(BAD)
    counts = {"trained": EPOCHS * good, "bad": EPOCHS * bad, "skipped": 0, "repeated": repeated}
    return {"per_epoch": RECORDS, **counts}


@pytest.mark.slow
def test_a_cluster_passes_over_exactly_the_bad_records(tmp_path: pathlib.Path) -> None:
    task = counting_task.CountingTask(records=RECORDS)
    data, job_dir = corrupt_data(tmp_path / "data", task), tmp_path / "job"
    settings = (f"--train.batch_size={BATCH}", f"--train.epochs={EPOCHS}")
    argv = flags(data, job_dir, task, f"--data.max_bad_records={len(BAD)}", *settings)
    with local_cluster(2, 2, argv) as program:
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    assert report["examples"] == exact()
    assert_listed(report)
    for epoch in (1, 2):
        visited = trained(data, task, job_dir, epoch)
        assert set(np.flatnonzero(visited == 0)) == BAD
        assert np.sum(visited == epoch) == RECORDS - len(BAD)
    assert program.errors == []
    assert f"of at most {len(BAD)} bad records" in program.text


@pytest.mark.slow
def test_a_killed_chief_goes_on_with_the_bad_records_it_knew(tmp_path: pathlib.Path) -> None:
    task = counting_task.CountingTask(records=RECORDS, step_seconds=0.05)
    data, job_dir = corrupt_data(tmp_path / "data", task), tmp_path / "job"
    settings = {"batch_size": BATCH, "epochs": EPOCHS, "checkpoint_seconds": 2}
    settings["keep_checkpoints"] = 1000  # none is deleted while it is looked at
    own = (f"--train.{name}={value}" for name, value in settings.items())
    argv = flags(data, job_dir, task, f"--data.max_bad_records={len(BAD)}", *own)
    with local_cluster(2, 2, argv) as program:
        deadline = time.monotonic() + PATIENCE
        while not any(commit["queue"]["bad"] for commit in checkpoints(job_dir)):
            assert time.monotonic() < deadline, program.text
            time.sleep(0.1)
        known = checkpoints(job_dir)[-1]["queue"]["bad_records"]
        assert 0 < len(known) <= len(BAD)
        program.tasks()["chief 0"].kill()
        program.see("resuming from")
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    assert report["examples"] == exact()
    assert_listed(report)
    visited = trained(data, task, job_dir, EPOCHS)
    assert set(np.flatnonzero(visited == 0)) == BAD
    assert np.sum(visited == EPOCHS) == RECORDS - len(BAD)


@pytest.mark.slow
def test_a_shard_that_is_cut_off_costs_only_what_is_missing(tmp_path: pathlib.Path) -> None:
    task = counting_task.CountingTask(records=300)
    data, job_dir = counting_task.write(tmp_path / "data", task, [200, 100]), tmp_path / "job"
    path = data.path_of(data.shards[0])
    os.truncate(path, data.shards[0].bytes - 100)
    settings = (f"--train.batch_size={BATCH}", f"--train.epochs={EPOCHS}")
    argv = flags(data, job_dir, task, "--data.max_bad_records=5", "--mode.name=local", *settings)
    with Program(*argv) as program:
        assert program.finish() == 0, program.text
    report = read_report(job_dir)
    [entry] = report["bad_records"]
    place = ("counted-00000-of-00002.tfrecord", 198, 2)
    assert (entry["shard"], entry["record"], entry["records"]) == place
    assert entry["reason"].startswith("is cut off: the file ends after ")
    good, bad = EPOCHS * 298, EPOCHS * 2
    counts = {"trained": good, "bad": bad, "skipped": 0, "repeated": 0}
    assert report["examples"] == {"per_epoch": 300, **counts}
    visited = trained(data, task, job_dir, EPOCHS)
    assert np.flatnonzero(visited == 0).tolist() == [198, 199]
    assert np.sum(visited == EPOCHS) == 298
    program.see(r"shard counted-00000-of-00002.tfrecord is cut off: it has \d+ bytes, but")
