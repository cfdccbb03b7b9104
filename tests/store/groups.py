"""A group of tables as tests make it, without a store around it."""

import tensorflow as tf

from tfps.store.layout import Group
from tfps.store.messages import EXACT
from tfps.store.table_group import TableGroup


def lazy_group(layout, devices, rule, decays=False, seed=0, wire=EXACT):
    """A group whose updates change nothing but the rows that are touched."""
    group = Group(layout, rule, decays, is_lazy=True)
    return TableGroup(group, devices, seed, lambda part: tf.zeros([], tf.int64), wire)
