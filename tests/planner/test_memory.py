import dataclasses
import itertools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from configs.smoke import Smoke, get_config
from tests.store.groups import lazy_group
from tests.training_fixtures import Trainer, save
from tfps.checkpoint.directory import CheckpointDirectory
from tfps.checkpoint.restore import restore
from tfps.coordinator.executor import LocalExecutor
from tfps.errors import UserError
from tfps.experiment.task import Table
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState
from tfps.optimizers.rules import rule_for
from tfps.planner.memory import PROCESS_BYTES, WORKING_BYTES, Placement, check_memory
from tfps.store.group_layout import AskedIds, GroupLayout
from tfps.store.layout import DenseLayout, Group, StateLayout, StoreLayout
from tfps.store.partitioned_variable import CHUNK_BYTES
from tfps.worker.async_loop import AsyncLoop
from tfps.worker.closures import Closures
from trainer.datasets.generation import generate

RESERVE = PROCESS_BYTES + WORKING_BYTES
MODELS = {
    "small tables": {16: [20_000] * 26},
    "large tables": {16: [200_000] * 26},
    "one giant table": {64: [300_000_000]},
    "several dims": {1: [5_000] * 8, 8: [40_000, 700, 3], 32: [1_000_000, 20_000]},
    "tables below a bucket each": {4: [7, 100, 11]},
}


def layout(tables, parts=1, dense=(400, 128), optimizer=None):
    """Tables by dimension, with one dense kernel."""
    rule = rule_for(optimizer or keras.optimizers.Adagrad())
    zeros = keras.initializers.Zeros()
    groups = tuple(
        Group(
            GroupLayout(
                tuple(Table(f"{dim}/{i}", n, dim, zeros) for i, n in enumerate(rows)), parts
            ),
            rule,
            False,
        )
        for dim, rows in tables.items()
    )
    group_of = tuple((g, i) for g, rows in enumerate(tables.values()) for i in range(len(rows)))
    flat = DenseLayout(("kernel",), (dense,), parts)
    state = StateLayout(DenseLayout(("mean",), ((8,),), 1), (True,))
    return StoreLayout(flat, rule, state, groups, group_of)


def uneven(values):
    """By how much the largest exceeds the mean."""
    return max(values) / np.mean(values) - 1.0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("parts", [1, 2, 3, 5, 8])
def test_every_buffer_and_every_ps_is_even_by_bytes(model, parts):
    placement = Placement.of(layout(MODELS[model], parts), workers=2)
    assert placement.imbalance < 0.05
    needed = [placement.needed_bytes(ps) for ps in range(parts)]
    assert max(needed) == needed[-1]
    by_name = itertools.groupby(sorted(placement.shares, key=lambda s: s.name), lambda s: s.name)
    for name, shares in by_name:
        sizes = [share.total_bytes for share in shares]
        if name != "state":
            assert len(sizes) == parts
            assert uneven(sizes) < 0.05


def test_nothing_is_left_out_or_counted_twice():
    placed = layout(MODELS["several dims"], parts=3)
    placement = Placement.of(placed, workers=1)
    parameters = sum(share.parameter_bytes for share in placement.shares)
    tables = sum(g.layout.total_rows * g.layout.dim for g in placed.groups)
    assert parameters == 4 * (400 * 128 + 8 + tables)
    assert sum(s.slot_bytes for s in placement.shares) == 4 * (400 * 128 + tables)  # Adagrad: one
    for name in {share.name for share in placement.shares}:
        assert sum(s.fraction for s in placement.shares if s.name == name) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("parts", "staleness", "loss_scale"),
    [(1, 0, 0), (2, 1, 0), (3, 1, 1), (4, 2, 1), (9, 7, 4)],
)
def test_the_first_ps_has_little_that_a_step_asks_of_one_alone(parts, staleness, loss_scale):
    placed = layout({4: [100]}, parts)
    assert (placed.staleness_part, placed.loss_scale_part) == (staleness, loss_scale)


@pytest.mark.parametrize("parts", [1, 2])
def test_the_plan_is_what_the_store_holds(tmp_path, parts):
    config = get_config()
    manifest = generate(config, str(tmp_path), 10, 1, 0, 0, "smoke", False)
    store = Trainer(manifest, parts=parts).store
    placement = Placement.of(store.layout, workers=1)
    held = sum(int(np.prod(slice_.variable.shape)) * 4 for slice_ in store.slices())
    assert sum(placement.held_bytes(ps) for ps in range(parts)) == held
    marks = [
        sum(share.mark_bytes for share in placement.shares if share.ps == ps) for ps in range(parts)
    ]
    fullest = max(placement.held_bytes(ps) - marks[ps] for ps in range(parts))
    assert fullest <= store.layout.ps_bytes <= 1.05 * fullest + 1000


_TABLES = {"small": [20_000] * 26, "large": [200_000] * 26, "giant": [2_000_000]}
_FEW = {("small", 8), ("large", 3), ("giant", 5)}


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        pytest.param(name, parts, marks=() if (name, parts) in _FEW else pytest.mark.slow)
        for name in _TABLES
        for parts in (2, 3, 5, 8)
    ],
)
def test_a_pull_of_skewed_ids_asks_every_ps_for_as_many_rows(name, parts):
    rows = _TABLES[name]
    [group] = layout({1: rows}, parts, optimizer=keras.optimizers.SGD()).groups
    tables = lazy_group(group.layout, ["/device:CPU:0"] * parts, group.rule)
    pull = tf.function(
        lambda ids: [tf.size(x) for x in tables.pull(AskedIds(ids)).owned], reduce_retracing=True
    )
    generator = np.random.default_rng(0)
    traffic = np.zeros(parts)
    for _ in range(20):
        ids = generator.zipf(1.2, (512, 26))
        of_table = np.arange(26) % len(rows)
        ids = ids % np.array(rows)[of_table] + np.array(group.layout.offsets)[of_table]
        traffic += pull(tf.constant(ids.ravel(), group.layout.id_dtype))
    assert traffic.sum() > 20 * 512
    assert uneven(traffic) < 0.05


def test_when_rows_were_updated_takes_four_bytes_each():
    for optimizer, size in ((keras.optimizers.Adagrad(), 0), (keras.optimizers.Adam(), 4)):
        placed = Placement.of(layout({8: [1000]}, 2, optimizer=optimizer), 1)
        rows = [share for share in placed.shares if share.name == "tables_dim8"]
        assert [share.mark_bytes for share in rows] == [share.rows * size for share in rows]


def test_what_does_not_fit_is_refused_with_a_number_of_ps_that_does():
    placed = layout({16: [10_000_000]}, parts=2)  # 1.19 GiB with Adagrad's slot
    limit = RESERVE + (512 << 20)
    with pytest.raises(UserError) as caught:
        check_memory(placed, workers=2, limit=limit)
    message = str(caught.value)
    match = re.search(r"--ps_memory=.*GiB: each of 2 ps needs up to .*, (.*) MiB too much", message)
    assert match
    excess = Placement.of(placed, workers=2).needed_bytes(0) - limit
    assert float(match[1]) == pytest.approx(excess / 2**20, abs=0.1)
    assert "3 ps of that memory would do" in message
    check_memory(placed.over(3), workers=2, limit=limit)


def test_the_graph_of_many_workers_counts_on_every_ps():
    few, many = (Placement.of(layout({16: [1000]}, 100), workers) for workers in (10, 1000))
    more = many.graph.ps_bytes - few.graph.ps_bytes
    assert many.needed_bytes(0) - many.in_flight_bytes(0) == (
        few.needed_bytes(0) - few.in_flight_bytes(0) + more
    )
    assert 4 << 30 < many.graph.ps_bytes < 8 << 30
    with pytest.raises(UserError, match="no number of ps would do"):
        check_memory(layout({16: [1000]}, 100), workers=1000, limit=4 << 30)


def test_no_number_of_ps_is_named_whose_graph_does_not_fit():
    rows, limit = 200_000_000, RESERVE + (160 << 20)
    with pytest.raises(UserError, match="no number of ps would do"):
        check_memory(layout({16: [rows]}, parts=2), workers=1, limit=limit)


@pytest.mark.slow
def test_the_estimate_of_the_graph_is_near_a_traced_one(tmp_path):
    manifest = generate(get_config(), str(tmp_path), 10, 1, 0, 0, "smoke", False)
    nodes, sizes = {}, {}
    for parts in (2, 4, 6, 8):
        trainer = Trainer(manifest, parts=parts)
        closures = Closures(
            trainer.experiment,
            trainer.step,
            AsyncLoop(trainer.step, trainer.progress),
            trainer.progress,
            LocalExecutor().worker_index,
        )
        graph = closures.train.get_concrete_function().graph.as_graph_def()
        nodes[parts] = len(graph.node) + sum(len(f.node_def) for f in graph.library.function)
        sizes[parts] = graph.ByteSize()
    for few, more in ((2, 4), (6, 8)):  # where tensors are put together, and where they are not
        estimate = Placement.of(trainer.store.layout.over(more), workers=2).graph
        for_each = (nodes[more] - nodes[few]) / 2
        assert 0.9 * estimate.nodes_per_ps < for_each <= 1.1 * estimate.nodes_per_ps
        assert 0.6 * estimate.total_bytes < sizes[more] <= 1.1 * estimate.total_bytes


def test_too_little_for_any_number_of_ps_is_refused_as_such():
    with pytest.raises(UserError, match="no number of ps would do"):
        check_memory(layout({16: [1000]}), workers=1, limit=RESERVE)


@pytest.mark.slow
def test_a_table_larger_than_any_one_ps_trains(tmp_path):
    task = Smoke(vocabulary=1_000_000)
    experiment = dataclasses.replace(get_config(), task=task)
    manifest = generate(experiment, str(tmp_path), 200, 2, 0, 0, "smoke", False)
    table = 1_000_000 * 4 * 3 * 4  # rows, dim, Adam's slots, bytes
    limit = RESERVE + table // 2
    trainer = Trainer(manifest, task=task, parts=3)
    with pytest.raises(UserError, match="3 ps of that memory would do"):
        check_memory(trainer.store.layout.over(1), workers=1, limit=limit)
    check_memory(trainer.store.layout, workers=1, limit=limit)
    before = trainer.store.read_table(0)
    leases = trainer.queue()
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    changed = np.flatnonzero((trainer.store.read_table(0) != before).any(1))
    assert 50 < len(changed) <= 200
    placed = trainer.store.layout.groups[0].layout
    _, owner = placed.locate(tf.constant(changed))
    assert set(owner.numpy()) == {0, 1, 2}


class Peak:
    """The most memory held within a block, beside what was held before; bytes."""

    def __enter__(self):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        self.before = self._status("VmRSS")
        return self

    def __exit__(self, *exception):
        self.bytes = self._status("VmHWM") - self.before

    def _status(self, name):
        with open("/proc/self/status") as file:
            [line] = [line for line in file if line.startswith(f"{name}:")]
        return int(line.split()[1]) * 1024


@pytest.mark.slow
def test_neither_a_start_nor_a_save_nor_a_restore_holds_a_table_twice(tmp_path):
    task = Smoke(vocabulary=80_000, dim=256)
    manifest = generate(get_config(), str(tmp_path / "data"), 64, 1, 0, 0, "smoke", False)
    table = 80_000 * 256 * 3 * 4  # 246 MB with Adam's slots
    spare = 3 * CHUNK_BYTES
    with Peak() as start:
        trainer = Trainer(manifest, task=task, parts=2)
    assert start.bytes < table + spare  # less where TensorFlow keeps what earlier tests freed
    leases = trainer.queue()
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)
    directory = CheckpointDirectory(JobDir(tmp_path))
    with Peak() as saving:
        checkpoint = save(directory, trainer.store, QueueState(), [{}])
    assert saving.bytes < spare
    with Peak() as restoring:
        restore(checkpoint, trainer.store, [{}])
    assert restoring.bytes < 4.5 * CHUNK_BYTES < table  # each of two ps reads two at a time


def test_a_save_in_the_background_takes_a_second_copy(tmp_path):
    placed = layout({16: [10_000_000]}, parts=2)
    waiting, background = Placement.of(placed, 2), Placement.of(placed, 2, in_background=True)
    for ps in range(2):
        held = background.held_bytes(ps)
        assert held == background.snapshot_bytes(ps) > waiting.snapshot_bytes(ps) == 0
        assert background.needed_bytes(ps) == waiting.needed_bytes(ps) + held
    limit = waiting.needed_bytes(1)
    check_memory(placed, 2, limit)
    with pytest.raises(UserError, match=r"5 ps .*so would train\.checkpoint_in_background=false"):
        check_memory(placed, 2, limit, in_background=True)
