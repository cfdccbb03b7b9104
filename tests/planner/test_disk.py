import shutil

import keras
import pytest

from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.optimizers.rules import rule_for
from tfps.planner.disk import check_disk_space
from tfps.store.flat_layout import DenseLayout, StateLayout
from tfps.store.group_layout import GroupLayout
from tfps.store.layout import Group, StoreLayout

DIM = 64
ROW_BYTES = 3 * DIM * 4  # with Adam's two slots


def layout(rows):
    """One table of so many rows on two ps."""
    rule = rule_for(keras.optimizers.Adam())
    table = Table("table", rows, DIM, keras.initializers.Zeros())
    group = Group(GroupLayout((table,), 2), rule, False)
    flat = DenseLayout(("kernel",), ((4, 8),), 2)
    return StoreLayout(flat, rule, StateLayout(DenseLayout((), (), 1), ()), (group,), ((0, 0),))


def test_a_checkpoint_must_fit(tmp_path):
    check_disk_space(layout(1000), str(tmp_path))
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(UserError) as raised:
        check_disk_space(layout(2 * free // ROW_BYTES), str(tmp_path))
    assert str(raised.value).startswith(f"--job_dir={tmp_path}: a checkpoint takes ")
    assert " left; delete what is not needed" in str(raised.value)


def test_a_bucket_has_room():
    check_disk_space(layout(1 << 40), "gs://bucket/job")
