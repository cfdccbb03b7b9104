"""Whether occurrences of an id count by themselves: nothing that a checkpoint depends on."""

import numpy as np
import pytest

from tests.store.test_row_updates import DATA, Likes
from tests.training_fixtures import save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore


@pytest.mark.parametrize(("before", "after"), [("sum", "each"), ("each", "sum")])
def test_a_run_resumes_with_the_other_setting(before, after, tmp_path):
    task = Likes()
    model = StatelessModel(task, 0)
    first, second = (
        ParameterStore(model, Rules.of(task, model, repeated_ids=setting), ["/device:CPU:0"], seed)
        for seed, setting in enumerate((before, after))
    )
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, first, QueueState(), DATA)
    assert not np.array_equal(first.read_table(0), second.read_table(0))
    restore(directory.latest(), second, DATA)
    for ours, theirs in zip(first.slices(), second.slices(), strict=True):
        np.testing.assert_array_equal(ours.variable.numpy(), theirs.variable.numpy())
