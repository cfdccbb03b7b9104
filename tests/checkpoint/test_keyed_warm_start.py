"""New jobs that begin with the rows of another's tables without vocabularies."""

import numpy as np
import pytest

from tests.checkpoint.keyed import URLS, USERS, Keyed, RowTrainer, hash_of, rows_of, store_of
from tests.checkpoint.saved_state import DATA
from tests.training_fixtures import save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.layer_transfer import LayerSelection
from tfps.checkpoint.restore import WarmStart
from tfps.errors import UserError
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState

TASK = Keyed()
KEYS = np.array([2**63 - 1, -(2**63), 5, 6, 7])


@pytest.fixture(name="job", scope="module")
def job_fixture(tmp_path_factory):
    """A job's directory with a checkpoint, and the parameters that it holds, on 2 ps."""
    trainer, job_dir = RowTrainer(store_of(TASK)), tmp_path_factory.mktemp("job")
    trainer.train(USERS, KEYS)
    trainer.train(URLS, KEYS[:3])
    trainer.train(USERS, KEYS[:2])
    save(CheckpointDirectory(JobDir(job_dir)), trainer.store, QueueState(2), DATA)
    return str(job_dir), trainer.store


def read(store, table, keys):
    return store.read_rows([each.name for each in store.layout.tables].index(table), keys)


@pytest.mark.slow
def test_all_rows_and_slots_of_another_job_are_taken_on_any_number_of_ps(job):
    job_dir, saved = job
    store = store_of(TASK, 3)
    WarmStart(job_dir).begin(store)
    assert rows_of(store) == rows_of(saved)
    assert store.steps() == saved.steps() == 3


@pytest.mark.slow
def test_a_layer_s_keys_are_taken_with_slots_and_counts_of_a_new_job(job):
    job_dir, saved = job
    other = Keyed(url_dim=6, rule="adagrad")  # so that groups are others, too
    store = store_of(other, 3)
    WarmStart(job_dir, ("users",)).begin(store)
    found = rows_of(store)
    assert found.keys() == {hash_of(store, USERS, int(key)) for key in KEYS}
    np.testing.assert_allclose(
        read(store, USERS, KEYS), read(saved, USERS, KEYS), rtol=0, atol=1e-6
    )
    for record, lines in found.values():
        assert np.frombuffer(record, np.int32).tolist() == [0, 0, 0]
        assert np.frombuffer(lines, np.float32)[4:].tolist() == pytest.approx([0.1] * 4)
    trainer = RowTrainer(store)
    trainer.train(USERS, [5, 8])
    assert len(rows_of(store)) == 6
    assert not np.array_equal(read(store, USERS, [5]), read(saved, USERS, [5]))


@pytest.mark.slow
def test_a_frozen_table_keeps_the_rows_it_was_given_and_admits_no_key(job):
    job_dir, saved = job
    store = store_of(Keyed(freezes=True))
    WarmStart(job_dir, ("users", "days")).begin(store)
    before = {key: lines for key, (_, lines) in rows_of(store).items()}
    trainer = RowTrainer(store)
    trainer.train(USERS, [5, 8, 9])
    for group in store.keyed_groups:
        group.forget(store.steps())
    assert {key: lines for key, (_, lines) in rows_of(store).items()} == before
    np.testing.assert_allclose(
        read(store, USERS, KEYS), read(saved, USERS, KEYS), rtol=0, atol=1e-6
    )
    assert not read(store, USERS, [8]).any()


@pytest.mark.slow
def test_a_frozen_table_notes_which_of_its_keys_occur_in_training(job):
    store = store_of(Keyed(freezes=True))
    WarmStart(job[0], ("users", "days")).begin(store)
    trainer = RowTrainer(store)
    trainer.train(USERS, [5, 8])
    trainer.train(USERS, [5, 6, 6])
    read(store, USERS, KEYS)
    found = rows_of(store)
    noted = {}
    for key in KEYS.tolist():
        record, _ = found[hash_of(store, USERS, key)]
        _, last, uses = np.frombuffer(record, np.int32).tolist()
        noted[key] = last, uses
    assert noted == {2**63 - 1: (0, 0), -(2**63): (0, 0), 5: (2, 2), 6: (2, 1), 7: (0, 0)}
    names = [table.name for table in store.layout.tables]
    index, _ = store.layout.group_of[names.index(USERS)]
    assert store.groups[index].counts()[USERS]["dropped"] == 0


@pytest.mark.slow
def test_more_rows_than_a_table_may_have_are_refused(job):
    with pytest.raises(
        UserError,
        match=rf"table '{USERS}' would begin with 5 rows or more, but has room for 3: give its "
        "layer a larger max_rows",
    ):
        WarmStart(job[0], ("users",)).begin(store_of(Keyed(max_rows=3)))


@pytest.mark.parametrize(
    ("theirs", "ours", "why"),
    [
        (
            [None, 4],
            [20, 4],
            "t/embeddings is a table without a vocabulary in other/7 and a table with a row for "
            "each id here, so that its rows belong to other ids",
        ),
        (
            [20, 4],
            [None, 4],
            "t/embeddings is a table with a row for each id in other/7 and a table without a "
            "vocabulary here",
        ),
        ([None, 4], [None, 8], r"table t/embeddings is \[any, 4\] in other/7 and \[any, 8\] here"),
    ],
)
def test_a_table_of_another_kind_or_dim_is_refused_by_name(theirs, ours, why):
    signatures = [
        {"dense": {}, "state": {}, "tables": {"t/embeddings": shape}} for shape in (theirs, ours)
    ]
    with pytest.raises(UserError, match=f"--train.init_layers: {why}"):
        LayerSelection.of(["t"], *signatures, "other/7")
