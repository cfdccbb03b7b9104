"""What the store costs where tasks are many: graph, balance of rows, export.

Of `tasks` tasks a tenth are ps. The tree that is measured may be an older one: only what both have
is used. See `benchmarks.scale`.
"""

import dataclasses
import time
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from configs.criteo import get_config
from tfps.coordinator.executor import LocalExecutor
from tfps.experiment.task import Table
from tfps.leases.progress import LeaseProgress
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules, rule_for
from tfps.store.group_layout import GroupLayout
from tfps.store.layout import Group
from tfps.store.parameter_store import ParameterStore
from tfps.store.table_group import TableGroup
from tfps.worker.async_loop import AsyncLoop
from tfps.worker.closures import Closures
from tfps.worker.step import Step

_ROWS_OF_TABLE = 50_000
_EXPORTED_ROWS = 2_000_000
_DIM = 16
_BATCH = 512


def graph(tasks: Sequence[int]) -> list[dict]:
    """The training closure of the Criteo DLRM: 26 tables in one group, Adagrad.

    All devices are this process: what is counted is the graph, not the wire.
    """
    sizes = {count: _graph_of(max(1, count // 10)) for count in tasks}
    names = {
        "chief: CPU to create and trace, tasks/10 ps": "s",
        "nodes of the training closure": "nodes",
        "its GraphDef": "MB",
        "sent to all tasks": "GB",
    }
    values = {
        count: (seconds, nodes, size / 1e6, size * count / 1e9)
        for count, (seconds, nodes, size) in sizes.items()
    }
    return [
        {"what": what, "unit": unit, "by_tasks": {c: values[c][place] for c in tasks}}
        for place, (what, unit) in enumerate(names.items())
    ]


def balance(tasks: Sequence[int]) -> list[dict]:
    """How much more than the mean the fullest and the busiest of as many ps have.

    26 tables of 200,000 rows, batches of 512 with Zipf ids (exponent 1.2); traffic as it is
    expected, from each row's chance to be in a batch.
    """
    tables, count = 26, 200_000
    named = tuple(Table(f"t{k}", count, 1, None) for k in range(tables))
    chance = np.arange(1, count + 1) ** -1.2
    traffic = np.tile(1 - (1 - chance / chance.sum()) ** _BATCH, tables)
    rows, pulled = {}, {}
    for parts in tasks:
        try:
            layout = GroupLayout(named, parts)
        except ValueError:  # an older tree, in which there may be 1,024 ps at most
            rows[parts] = pulled[parts] = float("nan")
            continue
        sizes = [end - first for first, end in map(layout.bounds, range(parts))]
        rows[parts] = max(sizes) / np.mean(sizes) - 1
        by_part = np.zeros(parts)
        for start in range(0, tables * count, 1 << 20):
            some = np.arange(start, min(start + (1 << 20), tables * count))
            owner = layout.locate(tf.constant(some, layout.id_dtype))[1].numpy()
            by_part += np.bincount(owner, traffic[some], parts)
        pulled[parts] = by_part.max() / by_part.mean() - 1
    return [
        {"what": "rows of the fullest of as many ps above the mean", "unit": "", "by_tasks": rows},
        {"what": "rows pulled of the busiest above the mean", "unit": "", "by_tasks": pulled},
    ]


def export(tasks: Sequence[int]) -> list[dict]:
    """The chief's CPU time for each row of a table that it reads from tasks/10 ps."""
    rule = rule_for(keras.optimizers.Adagrad())
    table = Table("t", _EXPORTED_ROWS, _DIM, keras.initializers.Zeros())
    found = {}
    for count in tasks:
        parts = max(1, count // 10)
        devices = ["/device:CPU:0"] * parts
        tables = Group(GroupLayout((table,), parts), rule)
        group = TableGroup(tables, devices, 0, lambda part: tf.zeros([], tf.int64))
        began = time.process_time()
        group.read_table(0)
        found[count] = (time.process_time() - began) / _EXPORTED_ROWS * 1e9
    return [{"what": "export: CPU per row, tasks/10 ps", "unit": "ns", "by_tasks": found}]


def _graph_of(parts: int) -> tuple[float, int, int]:
    """CPU-seconds, nodes and bytes."""
    experiment = get_config()
    task = dataclasses.replace(experiment.task, rows_per_table=_ROWS_OF_TABLE)
    experiment = dataclasses.replace(experiment, task=task)
    model = StatelessModel(task, 0)
    began = time.process_time()
    store = ParameterStore(model, Rules.of(task, model), ["/device:CPU:0"] * parts, 0)
    step, progress = Step(task, model, store), LeaseProgress(4, "/device:CPU:0")
    loop = AsyncLoop(step, progress)
    closures = Closures(experiment, step, loop, progress, LocalExecutor().worker_index)
    traced = closures.train.get_concrete_function().graph.as_graph_def()
    seconds = time.process_time() - began
    nodes = len(traced.node) + sum(len(each.node_def) for each in traced.library.function)
    return seconds, nodes, traced.ByteSize()
