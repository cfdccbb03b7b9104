"""Clips gradients on the worker, before they are pushed."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.optimizers.update_rule import UpdateRule
from tfps.store.messages import PulledRows
from tfps.store.row_gradients import clip_by_value
from tfps.store.row_group import RowGroup


class GradientClipping:
    """What `clipnorm`, `global_clipnorm` and `clipvalue` of `keras.optimizers` do.

    A table counts as one variable; its norm is that of its gradient summed by row, or of all
    occurrences with `train.repeated_ids=each`, whose values are clipped before they are summed. A
    global norm is taken over all variables whose optimizers are equal. Norms that nobody asked for
    are not computed. Keras lets an optimizer have one of the three.
    """

    def __init__(self, dense: UpdateRule, groups: Sequence[RowGroup]):
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
            rows: For every group, the gradient of each distinct row `[u, width]`.
        """
        dense, rows = list(dense), list(rows)
        for rule in self._rules:
            mine = dense if rule == self._dense else []
            groups = [k for k, group in enumerate(self._groups) if group.rule == rule]
            limit = rule.config[rule.clip]
            if rule.clip == "clipnorm":
                clipped = [tf.clip_by_norm(gradient, limit) for gradient in mine]
                of_rows = [self._by_table(k, rows[k], pulled[k], limit) for k in groups]
            elif rule.clip == "global_clipnorm":
                scale = self._global_scale(mine, {k: rows[k] for k in groups}, limit)
                clipped = [gradient * scale for gradient in mine]
                of_rows = [self._groups[k].gradients.scaled(rows[k], scale) for k in groups]
            else:
                clipped = [clip_by_value(gradient, rule) for gradient in mine]
                of_rows = [self._groups[k].gradients.clipped_by_value(rows[k]) for k in groups]
            if mine:
                dense = clipped
            for k, gradient in zip(groups, of_rows, strict=True):
                rows[k] = gradient
        return dense, rows

    def _global_scale(
        self, dense: Sequence[tf.Tensor], rows: Mapping[int, tf.Tensor], limit: float
    ) -> tf.Tensor:
        """What gradients of dense variables and of groups' rows are multiplied by."""
        squares = [tf.square(gradient) for gradient in dense]
        squares += [self._groups[k].gradients.squares(gradient) for k, gradient in rows.items()]
        if not squares:  # a model without dense variables
            return tf.ones([])
        norm = tf.sqrt(tf.add_n([tf.reduce_sum(each) for each in squares]))
        [scale], _ = tf.clip_by_global_norm([tf.ones([])], limit, norm)
        return scale

    def _by_table(
        self, group: int, gradient: tf.Tensor, pulled: PulledRows, limit: float
    ) -> tf.Tensor:
        """Clips rows of a group by the norms of their tables."""
        table = self._groups[group].tables_of(pulled)
        gradients = self._groups[group].gradients
        squares = tf.reduce_sum(gradients.squares(gradient), 1)
        count = len(self._groups[group].layout.tables)
        norms = tf.sqrt(tf.math.unsorted_segment_sum(squares, table, count))
        scales = limit / tf.maximum(norms, limit)
        return gradients.scaled(gradient, tf.gather(scales, table)[:, tf.newaxis])
