import shutil

import keras
import pytest

from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.optimizers.rules import rule_for
from tfps.planner.memory import JobDisk, check_disk_space
from tfps.store.group_layout import GroupLayout
from tfps.store.layout import DenseLayout, Group, StateLayout, StoreLayout

DIM = 64
ROW_BYTES = 3 * DIM * 4  # with Adam's two slots


def layout(rows):
    """One table of so many rows on two ps."""
    rule = rule_for(keras.optimizers.Adam())
    table = Table("table", rows, DIM, keras.initializers.Zeros())
    group = Group(GroupLayout((table,), 2), rule, False)
    flat = DenseLayout(("kernel",), ((4, 8),), 2)
    return StoreLayout(flat, rule, StateLayout(DenseLayout((), (), 1), ()), (group,), ((0, 0),))


def test_a_checkpoint_and_the_export_must_fit(tmp_path):
    check_disk_space(str(tmp_path), JobDisk.of(layout(1000), 3, 1 << 20, 2).at_once)
    free = shutil.disk_usage(tmp_path).free
    disk = JobDisk.of(layout(2 * free // ROW_BYTES), 3, 1 << 30, 2)
    with pytest.raises(UserError) as raised:
        check_disk_space(str(tmp_path), disk.at_once)
    assert str(raised.value).startswith(f"--job_dir={tmp_path}: a checkpoint takes ")
    assert " and the export takes 1 GiB, but its disk has " in str(raised.value)
    assert " left; delete what is not needed" in str(raised.value)


def test_a_bucket_has_room():
    check_disk_space("gs://bucket/job", {"a checkpoint": 1 << 60})


def test_what_is_kept_counts_what_is_being_written():
    disk = JobDisk.of(layout(1000), 3, 1 << 20, 2)
    assert disk.all_bytes == 4 * disk.checkpoint_bytes + (3 << 20)
    assert str(disk).startswith("4 checkpoints of ")
    assert " and 3 exports of 1 MiB, " in str(disk)
    assert "export" not in str(JobDisk.of(layout(1000), 3, 0, 2))
    with_deltas = JobDisk.of(layout(1000), 3, 1 << 20, 2, 0.25)
    assert with_deltas.delta_bytes == 2 * (disk.checkpoint_bytes // 4)
    assert with_deltas.all_bytes == disk.all_bytes + 3 * with_deltas.delta_bytes
    assert " and 3 exports of 1 MiB with deltas of up to " in str(with_deltas)
