"""What several lookups and batches ask for is asked for once."""

import numpy as np
import tensorflow as tf

from tfps.store.group_layout import AskedIds


def test_distinct_ids_say_how_often_each_was_asked_for():
    ids, tables = tf.constant([7, 5, 7, 7], tf.int64), tf.constant([1, 0, 1, 1])
    asked = AskedIds(ids, tables, tf.ones_like(tables))
    distinct, inverse = asked.distinct()
    assert distinct.ids.numpy().tolist() == [7, 5]
    assert distinct.tables.numpy().tolist() == [1, 0]
    assert distinct.times.numpy().tolist() == [3, 1]
    np.testing.assert_array_equal(tf.gather(distinct.ids, inverse), asked.ids)


def test_what_is_distinct_in_each_batch_is_counted_over_all():
    batches = [
        AskedIds(
            tf.constant(ids, tf.int64),
            tf.zeros([len(ids)], tf.int32),
            tf.ones([len(ids)], tf.int32),
        ).distinct()[0]
        for ids in ([4, 4, 9], [9, 4], [2, 2, 2])
    ]
    joint, inverse = AskedIds.of_batches(batches).distinct()
    assert joint.ids.numpy().tolist() == [4, 9, 2]
    assert joint.times.numpy().tolist() == [3, 2, 3]
    assert inverse.numpy().tolist() == [0, 1, 1, 0, 2]


def test_ids_whose_number_does_not_count_keep_their_tables():
    asked = AskedIds(tf.constant([7, 5, 7], tf.int64), tf.constant([1, 0, 1]))
    distinct, _ = asked.distinct()
    assert distinct.ids.numpy().tolist() == [7, 5]
    assert distinct.tables.numpy().tolist() == [1, 0]
    assert distinct.times is None


def test_ids_that_tell_their_table_are_not_counted():
    batches = [AskedIds(tf.constant(ids)).distinct()[0] for ids in ([4, 4, 9], [9, 4])]
    joint, _ = AskedIds.of_batches(batches).distinct()
    assert joint.ids.numpy().tolist() == [4, 9]
    assert joint.tables is None is joint.times
