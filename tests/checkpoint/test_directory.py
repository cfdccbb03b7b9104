import dataclasses
import pathlib

import numpy as np
import pytest

from configs.smoke import Smoke
from tests.checkpoint.saved_state import whole
from tests.training_fixtures import Trainer, reused, save
from tfps.checkpoint.directory import CheckpointDirectory, Retention
from tfps.checkpoint.restore import restore, restore_newest
from tfps.data.followed_data import Position, position_of
from tfps.errors import RunError, UserError
from tfps.evaluation.history import BestMetric, Evaluation, Evaluations
from tfps.job_dir import JobDir
from tfps.leases.lease import EpochOrder
from tfps.leases.queue import QueueState

DATA = ({"records": 100, "shards": 2, "checksums": 1},)


def trained(manifest, parts=2):
    trainer = reused(manifest, parts=parts)
    leases = trainer.queue()
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    return trainer


def name_of(epoch):
    return f"000000000000-{epoch:06d}-000000000000"


def names(job_dir):
    return sorted(path.name for path in pathlib.Path(str(job_dir), "checkpoints").iterdir())


@pytest.mark.parametrize(
    "parts", [*(pytest.param(parts, marks=pytest.mark.slow) for parts in (1, 2)), 3]
)
def test_a_checkpoint_is_restored_bit_for_bit_onto_any_number_of_ps(manifest, tmp_path, parts):
    first = trained(manifest)
    directory = CheckpointDirectory(JobDir(tmp_path))
    state = QueueState(1, 100, trained=300, repeated=4, order=EpochOrder(32, 256, 5))
    saved = save(directory, first.store, state, DATA)

    second = Trainer(manifest, parts=parts, seed=9)
    found = directory.latest()
    assert found == saved
    restore(found, second.store, DATA)
    assert found.queue == state
    assert second.store.steps() == first.store.steps() > 0
    before, after = whole(first.store), whole(second.store)
    assert set(before) == set(after) >= {"dense", "dense/momentum", "tables_dim4", "state"}
    for name, values in before.items():
        assert np.array_equal(values, after[name]), name


@pytest.mark.slow
def test_training_goes_on_the_same_after_a_restore(manifest, tmp_path):
    first = trained(manifest)
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, first.store, QueueState(), DATA)
    second = reused(manifest, parts=3)
    restore(directory.latest(), second.store, DATA)
    for trainer in (first, second):
        leases = trainer.queue(epochs=2, state=QueueState(epoch=1))
        trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    for table in range(1):
        np.testing.assert_allclose(
            first.store.read_table(table), second.store.read_table(table), rtol=0, atol=1e-6
        )


def test_what_is_not_committed_is_no_checkpoint_and_is_deleted(manifest, tmp_path):
    trainer = trained(manifest)
    directory = CheckpointDirectory(JobDir(tmp_path))
    saved = save(directory, trainer.store, QueueState(), DATA)
    newer = pathlib.Path(str(tmp_path), "checkpoints", "000000009999-000001-000000000000")
    newer.mkdir()
    (newer / "parameters.part-0.data-00000-of-00001").write_bytes(b"half")
    assert directory.latest() == saved
    directory.delete_uncommitted()
    assert not newer.exists()
    assert pathlib.Path(saved.path).exists()


def test_a_save_that_is_refused_before_its_commit_is_no_checkpoint(manifest, tmp_path):
    trainer = trained(manifest)
    directory = CheckpointDirectory(JobDir(tmp_path))
    saved = save(directory, trainer.store, QueueState(), DATA)

    def refuse():
        raise RunError("a shard was replaced")

    with pytest.raises(RunError, match="a shard was replaced"):
        save(directory, trainer.store, QueueState(epoch=1), DATA, before_commit=refuse)
    assert directory.latest() == saved


def test_old_checkpoints_go(manifest, tmp_path):
    trainer = reused(manifest)
    directory = CheckpointDirectory(JobDir(tmp_path))
    for epoch in range(4):
        state = QueueState(epoch=epoch)
        save(directory, trainer.store, state, DATA, retention=Retention(2))
    assert names(tmp_path) == [name_of(2), name_of(3)]
    assert directory.latest().queue.epoch == 3
    assert directory.names() == [name_of(2), name_of(3)]
    assert directory.find(name_of(2)).queue.epoch == 2
    assert directory.find(name_of(2)).name == name_of(2)
    assert directory.find(name_of(1)) is None  # deleted meanwhile


def test_a_job_without_checkpoints_has_no_latest(tmp_path):
    directory = CheckpointDirectory(JobDir(tmp_path))
    directory.delete_uncommitted()
    assert directory.latest() is None


@pytest.mark.quick("options1*")
@pytest.mark.parametrize(
    ("options", "data", "named"),
    [
        ({"task": Smoke(units=9)}, DATA, "dense hidden/kernel was"),
        ({"task": Smoke(vocabulary=21)}, DATA, "tables token_table/embeddings was"),
        ({}, ({**DATA[0], "records": 5},), "train data records was 100, is 5"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(manifest, tmp_path, options, data, named):
    directory = CheckpointDirectory(JobDir(tmp_path))
    save(directory, reused(manifest).store, QueueState(), DATA)
    with pytest.raises(UserError, match="does not fit this run") as raised:
        restore(directory.latest(), Trainer(manifest, **options).store, data)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("theirs", "state", "ours", "refused"),
    [
        ("ab", QueueState(1), "ac", None),  # what has not begun may be others
        ("a", QueueState(2), "aab", None),
        ("ab", QueueState(3), "abac", None),
        ("ab", QueueState(1, 32), "ac", "train data of epoch 2 checksums was b, is c"),
        ("ab", QueueState(3), "abc", "train data of epoch 3 checksums was a, is c"),
        ("a", QueueState(1), "ba", "train data of epoch 1 checksums was a, is b"),
    ],
)
def test_only_epochs_that_have_begun_keep_their_data(
    manifest, tmp_path, theirs, state, ours, refused
):
    directory, trainer = CheckpointDirectory(JobDir(tmp_path)), reused(manifest)
    save(directory, trainer.store, state, [{"checksums": each} for each in theirs])
    found, datasets = directory.latest(), [{"checksums": each} for each in ours]
    if refused is None:
        restore(found, trainer.store, datasets)
        return
    with pytest.raises(UserError, match=f"does not fit this run: {refused};"):
        restore(found, trainer.store, datasets)


def test_a_run_that_follows_datasets_resumes_none_that_did_not(manifest, tmp_path):
    """Also after more than a million of them, whose number takes seven digits in the name."""
    directory, trainer = CheckpointDirectory(JobDir(tmp_path)), reused(manifest)
    followed = (dataclasses.asdict(Position(followed=1_234_567, last="x")),)
    save(directory, trainer.store, QueueState(1_234_567), followed)
    found = directory.latest()
    assert found.name.endswith("-1234567-000000000000")
    restore(found, trainer.store, (dataclasses.asdict(Position()),))
    assert position_of(found.datasets) == Position(followed=1_234_567, last="x")
    with pytest.raises(UserError, match=r"is of a run that followed datasets \(data.follow_sec"):
        restore(found, trainer.store, DATA)
    save(directory, trainer.store, QueueState(1_234_568), DATA)
    with pytest.raises(UserError, match="is of a run that did not follow datasets"):
        restore(directory.latest(), trainer.store, followed)


def test_a_state_that_is_saved_already_is_not_written_again(manifest, tmp_path):
    trainer = trained(manifest)
    directory = CheckpointDirectory(JobDir(tmp_path))
    saved = save(directory, trainer.store, QueueState(), DATA)
    assert save(directory, trainer.store, QueueState(), DATA) == saved
    later = save(directory, trainer.store, QueueState(cursor=32), DATA)
    assert later.steps == saved.steps
    assert directory.latest() == later


@pytest.mark.slow
def test_parameters_move_from_2_ps_to_3_to_1_and_training_goes_on(manifest, tmp_path):
    """As long as nothing is trained all stays bit for bit; then the loss continues where it was."""
    directory = CheckpointDirectory(JobDir(tmp_path))
    trainer = trained(manifest, parts=2)
    losses = [trainer.evaluate().loss]
    for epoch, parts in enumerate((3, 1), start=1):
        state = QueueState(epoch=epoch)
        save(directory, trainer.store, state, DATA)
        before, trainer = whole(trainer.store), reused(manifest, parts=parts)
        restored, passed_over = restore_newest(directory, trainer.store, DATA)
        assert (restored.queue, passed_over) == (state, {})
        after = whole(trainer.store)
        assert set(before) == set(after) >= {"dense", "dense/momentum", "dense/velocity"}
        for name, values in before.items():
            assert np.array_equal(values, after[name]), name
        assert trainer.evaluate().loss == pytest.approx(losses[-1])
        leases = trainer.queue(epochs=epoch + 1, state=state)
        trainer.coordinator.train(leases, lambda: False, lambda progress: None)
        losses.append(trainer.evaluate().loss)
    assert losses == sorted(losses, reverse=True)


def test_the_checkpoint_with_the_best_evaluation_stays_beside_the_last(manifest, tmp_path):
    trainer = reused(manifest)
    directory = CheckpointDirectory(JobDir(tmp_path))
    retention = Retention(1, best=BestMetric("auc", True))
    for epoch, auc in enumerate((0.6, 0.8, 0.7, float("nan"))):
        state = QueueState(epoch=epoch)
        saved = save(directory, trainer.store, state, DATA, retention=retention)
        evaluation = Evaluation(saved.name, 0, epoch, 100, {"auc": auc, "loss": 1.0}, 0.1, {})
        Evaluations(JobDir(tmp_path)).write(evaluation)
    assert names(tmp_path) == [name_of(1), name_of(3)]


def test_a_damaged_marker_among_the_old_ones_is_not_deleted(manifest, tmp_path, caplog):
    directory, store = CheckpointDirectory(JobDir(tmp_path)), reused(manifest).store
    for epoch in range(2):
        save(directory, store, QueueState(epoch), DATA)
    pathlib.Path(str(tmp_path), "checkpoints", name_of(0), "commit.json").write_text("{")
    save(directory, store, QueueState(2), DATA, retention=Retention(1))
    assert names(tmp_path) == [name_of(0), name_of(2)]
    assert f"{name_of(0)} is damaged and is not deleted" in caplog.text
