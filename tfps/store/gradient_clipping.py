"""Clips gradients on the worker, before they are pushed."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.optimizers.update_rule import UpdateRule
from tfps.store.messages import PulledRows
from tfps.store.row_group import RowGroup


class GradientClipping:
    """What `clipnorm`, `global_clipnorm` and `clipvalue` of `keras.optimizers` do.

    A table counts as one variable; its norm is that of its gradient summed by row. A global norm is
    taken over all variables whose optimizers are equal. Norms that nobody asked for are not
    computed. Keras lets an optimizer have one of the three.
    """

    def __init__(self, dense: UpdateRule, groups: Sequence[RowGroup]):
        """Takes note of which optimizer clips what.

        Args:
            dense: The rule of the dense variables.
            groups: All groups of tables.
        """
        self._dense = dense
        self._groups = groups
        rules = dict.fromkeys([dense, *(group.rule for group in groups)])
        self._rules = [rule for rule in rules if rule.clip]

    def clip(
        self,
        dense: Sequence[tf.Tensor],
        rows: Sequence[tf.Tensor],
        pulled: Sequence[PulledRows],
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """The gradients as they are to be pushed.

        Args:
            dense: One gradient per dense variable.
            rows: For every group, the gradient of each distinct row `[u, dim]`.
            pulled: For every group, those rows.

        Returns:
            `dense` and `rows`, clipped.
        """
        dense, rows = list(dense), list(rows)
        for rule in self._rules:
            mine = dense if rule == self._dense else []
            groups = [k for k, group in enumerate(self._groups) if group.rule == rule]
            gradients = [*mine, *(rows[k] for k in groups)]
            if not gradients:  # a model without dense variables
                continue
            limit = rule.config[rule.clip]
            if rule.clip == "clipnorm":
                clipped = [tf.clip_by_norm(gradient, limit) for gradient in mine]
                clipped += [self._by_table(k, rows[k], pulled[k], limit) for k in groups]
            elif rule.clip == "global_clipnorm":
                clipped, _ = tf.clip_by_global_norm(gradients, limit)
            else:
                clipped = [tf.clip_by_value(gradient, -limit, limit) for gradient in gradients]
            if mine:
                dense = clipped[: len(mine)]
            for k, gradient in zip(groups, clipped[len(mine) :], strict=True):
                rows[k] = gradient
        return dense, rows

    def _by_table(
        self, group: int, gradient: tf.Tensor, pulled: PulledRows, limit: float
    ) -> tf.Tensor:
        """Clips rows of a group by the norms of their tables."""
        table = self._groups[group].tables_of(pulled)
        squares = tf.reduce_sum(tf.square(gradient), 1)
        count = len(self._groups[group].layout.tables)
        norms = tf.sqrt(tf.math.unsorted_segment_sum(squares, table, count))
        scales = limit / tf.maximum(norms, limit)
        return gradient * tf.gather(scales, table)[:, tf.newaxis]
