"""Clips gradients, whole ones on a worker or parts of them on the ps."""

import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from tfps.optimizers.update_rule import Tensors, UpdateRule
from tfps.store.layout import StoreLayout
from tfps.store.messages import (
    BY_NORM,
    PartGradients,
    PulledRows,
    RowGradients,
    SentRows,
    clip_by_value,
)
from tfps.store.row_group import RowGroup

# What each rule that clips by norm multiplies gradients by, `[norms]`.
Scales = Mapping[UpdateRule, tf.Tensor]


class PartClipping:
    """What `GradientClipping` does, for gradients split over the ps.

    Each ps adds up the squares of its part; the first turns the sums into a scale for each variable
    and table. Nothing is sent where no rule clips by norm.
    """

    def __init__(self, layout: StoreLayout, groups: Sequence[RowGroup], devices: Sequence[str]):
        self._layout, self._groups, self._devices = layout, groups, devices
        rules = dict.fromkeys([layout.dense_rule, *(group.rule for group in groups)])
        self._by_norm = [rule for rule in rules if rule.clip in BY_NORM]

    def clip(self, parts: Sequence[PartGradients]) -> list[PartGradients]:
        if not self._by_norm:
            return [self._clipped(part, gradients, {}) for part, gradients in enumerate(parts)]
        squares = []
        for part, gradients in enumerate(parts):
            with tf.device(self._devices[part]):
                found = [self._squares(rule, part, gradients) for rule in self._by_norm]
                squares.append(tf.concat(found, 0))
        with tf.device(self._devices[0]):
            norms = tf.sqrt(tf.add_n(squares))
            limits = [rule.config[rule.clip] for rule in self._by_norm]
            sizes = [self._norms_of(rule) for rule in self._by_norm]
            limit = tf.repeat(tf.constant(limits, tf.float32), sizes)
            scales = limit / tf.maximum(norms, limit)
        clipped = []
        for part, gradients in enumerate(parts):
            with tf.device(self._devices[part]):
                by_rule = zip(self._by_norm, tf.split(tf.identity(scales), sizes), strict=True)
                clipped.append(self._clipped(part, gradients, dict(by_rule)))
        return clipped

    def _norms_of(self, rule: UpdateRule) -> int:
        if rule.clip == "global_clipnorm":
            return 1
        variables = len(self._layout.dense.names) if rule == self._layout.dense_rule else 0
        groups = [group for group in self._groups if group.rule == rule]
        return variables + sum(len(group.layout.tables) for group in groups)

    def _squares(self, rule: UpdateRule, part: int, gradients: PartGradients) -> tf.Tensor:
        """What a part adds to the squares of a rule's norms, `[norms]`."""
        found = [tf.zeros([0])]
        for dense in gradients.dense if rule == self._layout.dense_rule else ():
            pieces = tf.split(tf.square(dense), self._layout.dense.sizes_in(part))
            found.append(tf.stack([tf.reduce_sum(piece) for piece in pieces]))
        for group, rows in zip(self._groups, gradients.groups, strict=True):
            if group.rule == rule:
                table = group.tables_in_part(part, rows.rows)
                squares = tf.reduce_sum(group.gradients.squares(rows.gradient), 1)
                # Of no table are rows that were lost meanwhile, and so they are of no norm.
                count = len(group.layout.tables)
                found.append(tf.math.unsorted_segment_sum(squares, table, count))
        squares = tf.concat(found, 0)
        if rule.clip == "global_clipnorm":
            return tf.reduce_sum(squares, keepdims=True)
        return squares

    def _clipped(self, part: int, gradients: PartGradients, scales: Scales) -> PartGradients:
        """A part's gradients; `scales` are each rule's factors, `[norms]`."""
        layout = self._layout
        sizes = layout.dense.sizes_in(part)

        def by_variable(scale: tf.Tensor) -> tf.Tensor:
            return tf.repeat(scale[: len(sizes)], sizes)

        kind = RowGradients(1, layout.dense_rule)
        dense = [_clip(kind, gradient, scales, by_variable) for gradient in gradients.dense]
        # Behind the norms of the dense variables come those of the tables, group by group.
        firsts, groups = {layout.dense_rule: len(sizes)}, []
        for group, rows in zip(self._groups, gradients.groups, strict=True):
            first = firsts.get(group.rule, 0)
            firsts[group.rule] = first + len(group.layout.tables)
            by_row = functools.partial(_by_row, group, part, rows.rows, first)
            gradient = _clip(group.gradients, rows.gradient, scales, by_row)
            groups.append(SentRows(rows.rows, gradient))
        return PartGradients(dense, groups)


def _by_row(
    group: RowGroup, part: int, numbers: tf.Tensor, first: int, scale: tf.Tensor
) -> tf.Tensor:
    """The scale of each row, `[u, 1]`, from those of all tables, which begin at `first`."""
    table = tf.maximum(group.tables_in_part(part, numbers), 0)
    return tf.gather(scale, first + table)[:, tf.newaxis]


def _clip(
    kind: RowGradients,
    gradient: tf.Tensor,
    scales: Scales,
    spread: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Clips one gradient; rules that clip by norm are in `scales`, `[norms]` each."""
    if kind.rule.clip == "clipvalue":
        return kind.clipped_by_value(gradient)
    if kind.rule not in scales:
        return gradient
    scale = scales[kind.rule]
    is_one = kind.rule.clip == "global_clipnorm"
    return kind.scaled(gradient, scale if is_one else spread(scale))


class GradientClipping:
    """What `clipnorm`, `global_clipnorm` and `clipvalue` of `keras.optimizers` do.

    A table counts as one variable; its norm is that of its gradient summed by row, or of all
    occurrences with `train.repeated_ids=each`, whose values are clipped before they are summed. A
    global norm is taken over all variables whose optimizers are equal.
    """

    def __init__(self, dense: UpdateRule, groups: Sequence[RowGroup]):
        self._dense, self._groups = dense, groups
        rules = dict.fromkeys([dense, *(group.rule for group in groups)])
        self._rules = [rule for rule in rules if rule.clip]

    def clip(
        self, dense: Tensors, rows: Tensors, pulled: Sequence[PulledRows]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """The clipped gradients; `rows` are those of each group's distinct rows, `[u, width]`."""
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
        self, dense: Tensors, rows: Mapping[int, tf.Tensor], limit: float
    ) -> tf.Tensor:
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
        table = self._groups[group].tables_of(pulled)
        gradients = self._groups[group].gradients
        squares = tf.reduce_sum(gradients.squares(gradient), 1)
        count = len(self._groups[group].layout.tables)
        norms = tf.sqrt(tf.math.unsorted_segment_sum(squares, table, count))
        scales = limit / tf.maximum(norms, limit)
        return gradients.scaled(gradient, tf.gather(scales, table)[:, tf.newaxis])
