import dataclasses
import pathlib
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke
from tests import counting_task
from tests.training_fixtures import Trainer, dataset, reused
from tfps.data.record_source import Batching, RecordSource, read_batches
from tfps.job_dir.report import StalenessCounts
from tfps.leases.lease import EpochOrder
from tfps.model.variables import draw_of
from tfps.worker.closures import LeaseResult


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("data"), records=200, shards=1)


def train(trainer, lane=0, seed=3, first=0, count=None):
    (source, records_of_shard) = trainer.shards()[0]
    lease = tf.constant([first, count or records_of_shard - first, seed, lane], tf.int64)
    before = time.time()
    result = LeaseResult.unpack(trainer.closures.train(source.pack(), lease).numpy())
    assert (result.worker, result.bad, result.times.exchanges) == (0, 0, 0)
    assert before <= result.began <= result.began + result.seconds <= time.time()
    return result.attempts, result.steps, result.loss_sum, result.bad_step


def test_a_lease_is_trained_to_its_last_partial_batch(manifest):
    trainer = reused(manifest)
    attempts, steps, loss_sum, bad_step = train(trainer)
    assert (attempts, steps, bad_step) == (1, 7, -1)
    assert 0.3 < loss_sum / 200 < 1.5
    assert trainer.store.steps() == 7


@pytest.mark.slow
def test_ten_steps_in_a_turn_and_three_behind_train_every_record_once(tmp_path):
    """As on a cluster, of whose loop this is one turn."""
    task = counting_task.CountingTask(records=130)
    data = counting_task.write(tmp_path, task, [130])
    trainer = Trainer(data, task, batch_size=10, unroll=10)
    attempts, steps, _, bad_step = train(trainer)
    assert (attempts, steps, bad_step) == (1, 13, -1)
    assert trainer.steps() == 13
    assert set(trainer.store.read_table(0)[:, 0]) == {1.0}


def test_a_lease_begun_again_goes_on_after_its_last_recorded_batch(manifest):
    """A worker that is lost leaves its progress; the whole must be what one worker does alone."""
    whole = reused(manifest)
    train(whole)
    expected = whole.store.read_table(0)

    parts = reused(manifest)
    train(parts, count=96)
    progress = parts.progress.read()[0]
    assert (progress.worker, progress.steps) == (0, 3)
    attempts, steps, _, _ = train(parts)
    assert (attempts, steps) == (2, 7)
    assert parts.store.steps() == 7
    np.testing.assert_allclose(parts.store.read_table(0), expected, atol=1e-6)


@pytest.mark.slow
def test_a_lease_begun_again_reads_nothing_of_what_is_done(tmp_path):
    data = dataset(tmp_path, records=200, shards=1)
    trainer = reused(data, shuffle_buffer=70)  # blocks of 96 records
    path = trainer.shards()[0][0].path
    content, offsets = bytearray(pathlib.Path(path).read_bytes()), [0]
    while offsets[-1] < len(content):  # a record's length, 16 bytes around it
        length = int.from_bytes(content[offsets[-1] : offsets[-1] + 8], "little")
        offsets.append(offsets[-1] + length + 16)
    source = RecordSource(path, "", tuple(offsets[:-1:20]), 0, 20)
    trainer.shards = lambda: [(source, 200)]
    train(trainer, count=160)  # in the middle of the block that begins at record 96
    content[: offsets[80]] = b"\xff" * offsets[80]
    pathlib.Path(path).write_bytes(content)
    attempts, steps, _, _ = train(trainer)
    assert (attempts, steps) == (2, 7)
    assert trainer.store.steps() == 7


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"shuffle_buffer": 0}, marks=pytest.mark.slow),
        pytest.param({"shuffle_buffer": 70}, marks=pytest.mark.slow),
        {},  # a buffer for more than the shard
    ],
)
def test_a_shard_in_several_leases_is_trained_the_same_as_in_one(manifest, settings):
    whole = reused(manifest, **settings)
    _, _, loss_sum, _ = train(whole)
    expected = whole.store.read_table(0)
    parts, loss_sum_of_parts = reused(manifest, **settings), 0.0
    for lane, (first, count) in enumerate(((0, 96), (96, 64))):
        _, steps, loss, _ = train(parts, lane, first=first, count=count)
        assert steps == count // 32
        loss_sum_of_parts += loss
    parts.progress.clear({0: 0})
    _, steps, loss, _ = train(parts, first=160)
    assert steps == 2
    assert loss_sum_of_parts + loss == pytest.approx(loss_sum, rel=1e-6)
    np.testing.assert_allclose(parts.store.read_table(0), expected, atol=1e-6)


@pytest.mark.slow
def test_the_loss_of_negatives_is_part_of_their_records(manifest):
    trainer = reused(manifest, negatives=4)
    attempts, steps, loss_sum, bad_step = train(trainer)
    assert (attempts, steps, bad_step) == (1, 7, -1)
    assert 0.2 < loss_sum / 200 < 1.5
    assert trainer.store.steps() == 7


AHEAD = {"batch_size": 20, "shuffle_buffer": 70, "pipeline_depth": 2, "unroll": 2}


@pytest.mark.slow
def test_where_records_may_be_bad_good_ones_are_trained_the_same(manifest):
    plain, tolerant = reused(manifest, **AHEAD), reused(manifest, max_bad_records=1, **AHEAD)
    assert train(tolerant) == pytest.approx(train(plain), rel=1e-6)
    assert tolerant.steps() == plain.steps() == 10
    assert tolerant.store.staleness.report() == plain.store.staleness.report()
    np.testing.assert_allclose(tolerant.store.read_table(0), plain.store.read_table(0), atol=1e-6)
    for ours, theirs in zip(tolerant.store.read_dense(), plain.store.read_dense(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.slow
def test_batches_pulled_ahead_lack_the_last_updates_and_no_others(manifest):
    """Against the same updates by hand: batch k has the parameters of after batch k - 1 - depth."""
    depth = AHEAD["pipeline_depth"]
    ahead = reused(manifest, **AHEAD)
    _, steps, loss_sum, _ = train(ahead)
    assert steps == 10
    assert ahead.store.steps() == 10
    assert ahead.store.staleness.report() == StalenessCounts(mean=1.7, histogram=[1, 1, 8])

    by_hand = Trainer(manifest, batch_size=20, shuffle_buffer=70)
    source, _ = by_hand.shards()[0]
    block = EpochOrder.of(by_hand.experiment).block_batches
    batching = Batching(by_hand.task.schema(), 20, block)
    seed = tf.constant(3, tf.int64)
    batches = list(read_batches(source.tensors(), batching, seed))
    waiting, losses = [by_hand.step.pull(*batch) for batch in batches[:depth]], []
    for number in range(len(batches)):
        if number + depth < len(batches):
            waiting.append(by_hand.step.pull(*batches[number + depth]))
        draw = draw_of(seed, tf.constant(number, tf.int64))
        losses.append(float(by_hand.step.train(waiting.pop(0), draw)))
    assert loss_sum == pytest.approx(20 * sum(losses), rel=1e-6)
    np.testing.assert_allclose(
        ahead.store.read_dense()[0], by_hand.store.read_dense()[0], atol=1e-6
    )
    np.testing.assert_allclose(ahead.store.read_table(0), by_hand.store.read_table(0), atol=1e-6)


@pytest.mark.slow
def test_compiled_by_xla_a_step_computes_the_same(manifest):
    plain, compiled = (
        # XLA has random numbers of its own
        Trainer(manifest, Smoke(dropout=0.0), batch_size=32, jit_compile=jit)
        for jit in (False, True)
    )
    assert train(compiled) == pytest.approx(train(plain), rel=1e-5)
    np.testing.assert_allclose(compiled.store.read_table(0), plain.store.read_table(0), atol=1e-5)


def test_a_finished_lease_begun_again_trains_nothing(manifest):
    trainer = reused(manifest)
    train(trainer)
    before = trainer.store.read_table(0)
    attempts, steps, _, _ = train(trainer)
    assert (attempts, steps) == (2, 7)
    assert np.array_equal(before, trainer.store.read_table(0))


def test_a_cleared_slot_forgets(manifest):
    trainer = reused(manifest)
    train(trainer)
    trainer.progress.clear({0: 0})
    assert trainer.progress.read()[0].attempts == 0


@dataclasses.dataclass(frozen=True)
class Exploding(Smoke):
    def optimizer(self):
        return keras.optimizers.SGD(1e30)


def test_the_first_step_without_a_finite_loss_is_named_and_ends_the_lease(manifest):
    trainer = Trainer(manifest, Exploding(), batch_size=10, unroll=2)
    _, steps, _, bad_step = train(trainer)
    assert 1 <= bad_step <= 4
    assert steps < 20


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, AHEAD], ids=["plain", "ahead"])
def test_each_closure_is_traced_once(manifest, settings):
    trainer = reused(manifest, **settings)
    for lane, seed, first, count in ((0, 1, 0, 200), (1, 2, 0, 150), (1, 2, 160, 40)):
        train(trainer, lane, seed, first, count)
    assert trainer.closures.train.experimental_get_tracing_count() == 1


@dataclasses.dataclass(frozen=True)
class Counting(Smoke):
    traced: list = dataclasses.field(default_factory=list)

    def compute_loss(self, features, labels, outputs):
        self.traced.append(1)
        return super().compute_loss(features, labels, outputs)


@pytest.mark.slow
def test_a_model_is_not_traced_again_for_every_step_of_a_closure(manifest):
    task = Counting()
    trainer = Trainer(manifest, task, unroll=4)
    task.traced.clear()
    trainer.closures.train.get_concrete_function()
    assert len(task.traced) == 1


def test_nothing_orders_what_happens_on_a_worker_by_what_happens_on_a_ps(manifest):
    """TensorFlow runs a function's operations with state but without a resource in turn."""
    trainer = reused(manifest)
    library = trainer.closures.train.get_concrete_function().graph.as_graph_def().library
    used = {node.op for function in library.function for node in function.node_def}
    assert "MutexLock" in used
    assert not used & {"Assert", "If", "PrintV2"}


def test_every_record_is_evaluated_once_in_order(manifest):
    trainer = reused(manifest)
    source, count = trainer.shards()[0]
    arguments = source.pack(), tf.constant([0, count], tf.int64)
    loss_sum, all_labels, all_predictions, _ = trainer.closures.evaluate(*arguments)
    labels, predictions = all_labels["label"], all_predictions["predictions"]
    assert labels.shape == predictions.shape == (200,)
    stored = [
        tf.train.Example.FromString(x).features.feature["label"].int64_list.value[0]
        for x in tf.data.TFRecordDataset(source.path).as_numpy_iterator()
    ]
    assert labels.numpy().tolist() == stored
    likelihood = np.where(labels, predictions, 1 - predictions)
    penalty = trainer.task.regularization * sum(
        float(np.square(value).sum())
        for value, variable in zip(trainer.store.read_dense(), trainer.model.dense, strict=True)
        if variable.path == "hidden/kernel"
    )
    assert float(loss_sum) / 200 == pytest.approx(-np.log(likelihood).mean() + penalty, abs=1e-5)


class Descending(Smoke):
    """Moves by the gradients themselves."""

    def optimizer(self):
        return keras.optimizers.SGD(1.0)


@pytest.mark.slow
def test_gradients_are_those_of_a_step_that_is_not_made(manifest):
    trainer = Trainer(manifest, task=Descending(), batch_size=32)
    source, _ = trainer.shards()[0]
    dense, table = trainer.store.read_dense(), trainer.store.read_table(0)
    lease = tf.constant([0, 32, 3, 0], tf.int64)
    gradients, norms = trainer.closures.gradients(source.pack(), lease)
    assert trainer.steps() == 0
    train(trainer, count=32)
    assert trainer.steps() == 1
    for before, gradient, after in zip(dense, gradients, trainer.store.read_dense(), strict=True):
        np.testing.assert_allclose(before - gradient, after, rtol=0, atol=1e-6)
    moved = np.linalg.norm(table - trainer.store.read_table(0), axis=1)
    assert norms["token_table/embeddings"].shape == (32,)
    assert 0 < moved.sum() <= norms["token_table/embeddings"].numpy().sum() + 1e-6
