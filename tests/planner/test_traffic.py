import numpy as np
import pytest

from tests.frozen_backbone import FrozenBackbone
from tests.store.test_parameter_store import TwoTowers, batch
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.rules import Rules
from tfps.planner.traffic import WireBytes
from tfps.store.layout import StoreLayout


@pytest.mark.parametrize(
    ("dtype", "value", "repeated_ids"), [("float32", 4, "sum"), ("bfloat16", 2, "each")]
)
def test_distinct_rows_ids_once_and_dense_twice(dtype, value, repeated_ids):
    """The two lookups of the shared table count a row once, and groups apart."""
    task = TwoTowers()
    model = StatelessModel(task, 0)
    layout = StoreLayout.of(model, Rules.of(task, model, repeated_ids=repeated_ids), parts=3)
    values = 3 if repeated_ids == "each" else 2  # a row, its gradient, squares of its occurrences'
    generator = np.random.default_rng(0)
    batches = [batch(generator, size=size) for size in (32, 20)]
    found = WireBytes.of(model, layout, dtype, batches)
    dense = sum(int(np.prod(v.shape)) for v in model.dense)
    state = sum(int(np.prod(v.shape)) for v in model.state)
    rows, table_bytes = 0, 0
    for features, _ in batches:
        users, items = (len(np.unique(features[name])) for name in ("user", "items"))
        # One table of dimension 8, of users; two of dimension 4, of items and of users.
        rows += users + (items + users)
        table_bytes += users * (8 * value * values + 4)
        table_bytes += (items + users) * (4 * value * values + 4)
    assert (found.steps, found.examples, found.rows) == (2, 52, rows)
    assert found.table_bytes == table_bytes
    assert found.dense_bytes == 2 * (dense * value * 2 + state * 4 * 2)
    assert found.per_example == (found.table_bytes + found.dense_bytes) / 52
    without_labels = [(features, {}) for features, _ in batches]
    assert WireBytes.of(model, layout, dtype, without_labels) == found


def test_state_that_no_step_changes_is_counted_once():
    task = FrozenBackbone(width=16)
    model = StatelessModel(task, 0)
    layout = StoreLayout.of(model, Rules.of(task, model), parts=2)
    sizes = {v.path: int(np.prod(v.shape)) for v in model.state}
    moving = sum(size for path, size in sizes.items() if path.startswith("statistics/"))
    assert moving == 2 * 4
    features = {"numbers": np.zeros((3, 4), "f4"), "token": np.zeros(3, "i8")}
    batches = [(features, {"label": np.zeros(3, "i8")})] * 2
    found = WireBytes.of(model, layout, "float32", batches)
    assert found.fixed_bytes == 4 * (sum(sizes.values()) - moving)
    dense = sum(int(np.prod(v.shape)) for v in model.dense)
    assert found.dense_bytes == 2 * (2 * dense * 4 + 2 * moving * 4)
