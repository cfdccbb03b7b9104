import itertools

import numpy as np
import pytest
import tensorflow as tf

from tfps.experiment.task import Table
from tfps.store.group_layout import BUCKETS, GroupLayout


def layout(rows, parts, dim=4):
    return GroupLayout(tuple(Table(f"t{i}", n, dim, None) for i, n in enumerate(rows)), parts)


@pytest.mark.parametrize("rows", [[5], [1000, 24], [3 * BUCKETS, 2 * BUCKETS + 1, 7]])
@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_every_id_has_a_row_of_its_own_and_numpy_and_graph_agree(rows, dtype):
    group = layout(rows, parts=3)
    total = sum(rows)
    located, owner = group.locate(tf.range(total, dtype=dtype))
    located, owner = located.numpy(), owner.numpy()
    assert len(set(located)) == total
    assert located.min() >= 0
    assert located.max() < group.total_rows
    for part in range(3):
        first, end = group.bounds(part)
        assert np.array_equal(owner == part, (located >= first) & (located < end))
    by_table = np.concatenate([group.rows_of(i) for i in range(len(rows))])
    assert np.array_equal(by_table, located)
    table, ids = group.ids_of(np.arange(group.total_rows))
    for index, count in enumerate(rows):
        mine = np.flatnonzero(table == index)
        assert np.array_equal(np.sort(ids[mine]), np.arange(count))
        assert np.array_equal(group.rows_of(index, ids[mine]), mine)
    assert np.sum(table == len(rows)) == group.total_rows - total


def test_the_logical_order_does_not_depend_on_the_number_of_ps():
    ids = tf.range(5000)
    rows = [layout([5000], parts).locate(ids)[0].numpy() for parts in (1, 2, 5)]
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])


def test_int32_ids_near_the_limit_do_not_overflow():
    group = layout([2**31 - 1 - 2 * BUCKETS], parts=2)
    assert group.id_dtype == tf.int32
    ids = np.arange(2**31 - 1 - 2 * BUCKETS - 100, 2**31 - 1 - 2 * BUCKETS)
    rows, owner = group.locate(tf.constant(ids, tf.int32))
    block = ids // BUCKETS
    bucket = (ids % BUCKETS * 619 + block % BUCKETS * 377) % BUCKETS
    assert np.array_equal(rows.numpy(), bucket * group.bucket_rows + block)
    assert np.array_equal(owner.numpy(), bucket >= BUCKETS // 2)


def test_a_group_too_large_for_int32_uses_int64():
    assert layout([2**31], parts=2).id_dtype == tf.int64


def test_rows_know_their_table():
    rows = [1500, 10, 900]
    group = layout(rows, parts=1)
    table_of = tf.function(group.table_of_rows, autograph=False)
    tables = np.stack([table_of(tf.constant(b, tf.int64)) for b in range(BUCKETS)])
    for index in range(3):
        assert set(tables.ravel()[group.rows_of(index)]) == {index}


@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("rows", [20_000, 20 * BUCKETS])
def test_rows_and_skewed_traffic_are_even_over_the_ps(parts, rows):
    """26 tables with zipf ids; 20 * BUCKETS rows is the worst case of a plain id mod BUCKETS."""
    group = layout([rows] * 26, parts)
    sizes = [end - first for first, end in map(group.bounds, range(parts))]
    assert max(sizes) / min(sizes) < 1.01
    generator = np.random.default_rng(0)
    traffic = np.zeros(parts)
    for _ in range(20):
        ids = generator.zipf(1.2, (512, 26)) % rows + np.arange(26) * rows
        _, owner = group.locate(tf.unique(tf.reshape(tf.constant(ids), [-1]))[0])
        traffic += np.bincount(owner.numpy(), minlength=parts)
    assert traffic.max() / traffic.mean() < 1.05


@pytest.mark.parametrize("parts", [10, 100, 700, 2000])
def test_any_number_of_ps_holds_equally_many_rows(parts):
    group = layout([20_000] * 26, parts)
    bounds = [group.bounds(part) for part in range(parts)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == group.total_rows
    assert all(end == first for (_, end), (first, _) in itertools.pairwise(bounds))
    sizes = [end - first for first, end in bounds]
    assert max(sizes) - min(sizes) <= 1
    ids = tf.range(26 * 20_000)
    rows, owner = group.locate(ids)
    first, end = np.transpose(bounds)[:, owner.numpy()]
    assert ((first <= rows.numpy()) & (rows.numpy() < end)).all()


def test_of_a_group_with_fewer_rows_than_ps_some_hold_none():
    group = layout([5], 3000)
    sizes = [end - first for first, end in map(group.bounds, range(3000))]
    assert sum(sizes) == group.total_rows == BUCKETS
    assert set(sizes) == {0, 1}
    rows, owner = group.locate(tf.range(5))
    assert [group.bounds(part) for part in owner] == [(row, row + 1) for row in rows]


def test_the_logical_order_is_that_of_earlier_checkpoints():
    """Where the rows of a few ids have always been: checkpoints name rows by it."""
    group = layout([2000, 3000], 700)
    assert group.rows_of(1)[[0, 1, 47, 48, 2999]].tolist() == [1806, 4901, 3911, 3772, 1689]


@pytest.mark.parametrize("parts", [1, 3, 700])
@pytest.mark.parametrize("rows", [[5], [1500, 10, 900], [3 * BUCKETS, 2 * BUCKETS + 1, 7]])
def test_runs_of_a_table_are_its_ids_once_in_bounded_pieces(parts, rows):
    group = layout(rows, parts)
    for table, count in enumerate(rows):
        found = np.full(count, -1)
        places = 0
        for part in range(parts):
            first, end = group.bounds(part)
            for ids, own in group.runs_of(table, part, largest=500):
                places += len(ids)
                assert len(ids) <= 500
                assert ((own >= 0) & (own < end - first)).all()
                assert (found[ids] == -1).all()
                found[ids] = own + first
        assert places == count
        assert np.array_equal(found, group.rows_of(table))
