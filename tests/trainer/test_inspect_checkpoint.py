"""`trainer.inspect` of a job's checkpoints."""

import numpy as np
import pytest

from tests.checkpoint.keyed import URLS, USERS, Keyed, RowTrainer, hash_of, rows_of, store_of
from tests.checkpoint.saved_state import DATA
from tests.corruption import flip_bit
from tests.loaded import client
from tests.training_fixtures import save
from tfps.checkpoint import keyed_snapshot
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.saved_values import Norms, UsedKey, summaries
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState

GREATEST = 2**63 - 1


@pytest.fixture(name="trained", scope="module")
def trained_fixture():
    trainer = RowTrainer(store_of(Keyed()))
    trainer.train(USERS, [GREATEST, -(2**63), 5, 6, 7])
    trainer.train(USERS, [GREATEST, -(2**63)])
    trainer.train(USERS, [GREATEST])
    return trainer


@pytest.fixture(name="saved")
def saved_fixture(trained, tmp_path):
    return save(CheckpointDirectory(JobDir(tmp_path / "job")), trained.store, QueueState(0), DATA)


def test_rows_norms_and_the_keys_that_are_used_most_are_those_of_the_store(
    trained, saved, monkeypatch
):
    monkeypatch.setattr(keyed_snapshot, "CHUNK_BYTES", 200)  # two rows
    users, urls, days = (
        next(each for each in summaries(saved, 2) if each.name == name)
        for name in (USERS, URLS, "days/embeddings")
    )
    held = rows_of(trained.store)
    lines = [held[hash_of(trained.store, USERS, key)][1] for key in (GREATEST, -(2**63), 5, 6, 7)]
    norms = np.linalg.norm([np.frombuffer(each, np.float32)[:4] for each in lines], axis=1)
    names = [table.name for table in trained.store.layout.tables]
    assert (users.norms.count, urls.norms.count, days.norms.count) == (5, 0, 7)
    assert [users.norms.least, users.norms.greatest] == pytest.approx([norms.min(), norms.max()])
    assert users.norms.median == pytest.approx(np.median(norms), rel=1e-3)
    assert users.last_updates == (1, 3)
    assert users.most_used == [
        UsedKey(GREATEST, 3, 3, pytest.approx(norms[0])),
        UsedKey(-(2**63), 2, 2, pytest.approx(norms[1])),
    ]
    assert (urls.most_used, urls.last_updates) == ([], None)
    initial = np.linalg.norm(trained.store.read_table(names.index("days/embeddings")), axis=1)
    assert days.norms.greatest == pytest.approx(initial.max())
    assert days.norms.median == pytest.approx(np.median(initial), rel=1e-3)


def test_the_norm_in_the_middle_is_that_of_all_chunks():
    norms, drawn = Norms(), np.random.default_rng(0).exponential(size=1001).astype(np.float32)
    for some in np.array_split(drawn, 7):
        norms.add(some)
    assert norms.median == pytest.approx(np.median(drawn), rel=1e-3)
    assert Norms().median == 0


@pytest.mark.slow
def test_a_job_s_newest_checkpoint_is_shown_and_its_damage_is_named(saved, tmp_path):
    done = client.run("trainer.inspect", str(tmp_path / "job"), "--keys=1")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"checkpoint {saved.path} (a full one)\nupdates    3\n" in done.stdout
    assert f"keys of {USERS} whose rows most updates changed\n" in done.stdout
    assert f"\n{GREATEST}        3            3  " in done.stdout
    assert "of a table of strings, a key is the 63-bit fingerprint" in done.stdout
    assert "all 12 rows were read (" in done.stdout
    files = (tmp_path / "job/checkpoints" / saved.name).glob("parameters.data-*")
    largest = max(files, key=lambda file: file.stat().st_size)
    flip_bit(largest, largest.stat().st_size // 2)
    done = client.run("trainer.inspect", saved.path)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"error: checkpoint {saved.path} is damaged: parameters.data-" in done.stderr
