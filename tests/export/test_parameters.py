"""Parameters of a checkpoint that one process reads whole."""

import numpy as np

from tests.checkpoint.saved_state import DATA
from tests.store.test_parameter_store import TwoTowers
from tests.training_fixtures import save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.saved_values import SavedGroup
from tfps.export.parameters import CheckpointParameters
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.store.parameter_store import ParameterStore


def test_a_group_is_read_once_for_all_of_its_tables(tmp_path, monkeypatch):
    task = TwoTowers()
    model = StatelessModel(task, seed=1)
    rules = Rules.of(task, model)
    store = ParameterStore(model, rules, ["/device:CPU:0"] * 3, seed=1)
    checkpoint = save(CheckpointDirectory(JobDir(tmp_path)), store, QueueState(), DATA)
    read, seen = SavedGroup.read_run, []

    def counted(self, of, first, count):
        seen.append((self.name, first))
        return read(self, of, first, count)

    monkeypatch.setattr(SavedGroup, "read_run", counted)
    parameters = CheckpointParameters(checkpoint, model, rules)
    tables = range(len(model.tables))
    found = parameters.read_tables(tables)
    assert len(seen) == len(set(seen))
    assert len(parameters.layout.groups) < len(model.tables)
    for table in tables:
        np.testing.assert_array_equal(found[table], store.read_table(table))
        ids = np.arange(len(found[table]), dtype=np.int64)[::-2]
        some = parameters.read_rows({table: ids})
        np.testing.assert_array_equal(some[table], found[table][ids])
