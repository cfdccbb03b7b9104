"""Negatives that are sampled while records are read: a record with another id, and the label 0."""

import dataclasses
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.data.feature import Feature
from tfps.errors import UserError

UNIFORM, POPULARITY = DISTRIBUTIONS = ("uniform", "popularity")
# Added to a batch's number: the shuffling of blocks draws from the numbers below.
_APART = 1 << 62

Columns = Mapping[str, tf.Tensor | tf.RaggedTensor]


@dataclasses.dataclass(frozen=True)
class Negatives:
    """How negatives are sampled.

    The seed, the number of a batch and a record's place in it decide which negatives a record gets.
    A record's own id is never drawn for it.

    By popularity a negative has the id of another record of the batch, each as likely: in shuffled
    records an id is drawn as often as the data have it (Hidasi et al., "Session-based
    recommendations with recurrent neural networks", ICLR 2016). In a batch of one id, ids are drawn
    evenly, and what belongs to them stays the record's.
    """

    count: int
    columns: tuple[str, ...]  # features: first the id that is drawn, then what belongs to it
    ids: int  # how many there are, from 0 on
    targets: tuple[str, ...]  # labels that are 0 for a negative; all else is the record's own
    by_popularity: bool

    @classmethod
    def of(
        cls,
        count: int,
        columns: Sequence[str],
        distribution: str,
        features: Sequence[Feature],
        targets: Sequence[Feature],
    ) -> "Negatives":
        """The negatives that `data.negatives` and the fields next to it ask for."""
        known = {feature.name: feature for feature in features}
        for name in columns:
            if name not in known:
                raise UserError(
                    f"data.negatives_of: {name!r} is no feature of the task, which has "
                    f"{', '.join(known)}"
                )
        if not columns:
            raise UserError(
                f"data.negatives={count}: which feature is drawn? Name it, as in "
                "--data.negatives_of=item"
            )
        drawn = known[columns[0]]
        if drawn.shape not in ((), (1,)) or drawn.vocabulary_size < 2:
            raise UserError(
                f"data.negatives_of: {drawn.name!r} is no id to draw another of; it must be one "
                "int64 for each record, with a vocabulary of 2 or more"
            )
        if len(columns) > 1 and distribution == UNIFORM:
            raise UserError(
                f"data.negatives_of={','.join(columns)}: which {columns[1]} belongs to an id is "
                "known where it is another record's: set data.negatives_by=popularity, or name "
                f"{columns[0]} alone"
            )
        _refuse_others_than_yes_or_no(targets)
        names = tuple(target.name for target in targets)
        return cls(count, tuple(columns), drawn.vocabulary_size, names, distribution == POPULARITY)

    def add_to(
        self, features: Columns, labels: Columns, seed: tf.Tensor, number: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Records, each followed by its negatives: `[batch * (1 + count), *shape]` by name.

        The seed is that of the shard's order, `number` that of the batch in the shard; scalars
        int64.
        """
        ids = tf.reshape(features[self.columns[0]], [-1])
        drawn_from = tf.stack([seed, number + _APART])
        bits = tf.random.stateless_uniform(
            [tf.size(ids), self.count], drawn_from, None, None, tf.int64
        )
        own = tf.range(tf.size(ids))[:, tf.newaxis]
        sources = tf.tile(own, [1, self.count])
        drawn = self._evenly(ids, bits)
        if self.by_popularity:
            sources, has_other = _other_records(ids, bits, sources)
            drawn = tf.where(has_other, tf.gather(ids, sources), drawn)
        rows = tf.repeat(own[:, 0], 1 + self.count)
        item_rows = tf.reshape(tf.concat([own, sources], 1), [-1])
        inputs = {
            name: tf.gather(value, item_rows if name in self.columns else rows)
            for name, value in features.items()
        }
        with_drawn = tf.concat([ids[:, tf.newaxis], drawn], 1)
        shape = inputs[self.columns[0]].shape[1:]  # of a scalar, or of a list of one
        inputs[self.columns[0]] = tf.reshape(with_drawn, [-1, *shape])
        truth = {name: tf.gather(value, rows) for name, value in labels.items()}
        is_record = tf.equal(tf.range(tf.size(rows)) % (1 + self.count), 0)
        for name in self.targets:
            shape = [-1] + [1] * (truth[name].shape.rank - 1)
            zeros = tf.zeros_like(truth[name])
            truth[name] = tf.where(tf.reshape(is_record, shape), truth[name], zeros)
        return inputs, truth

    def _evenly(self, ids: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
        """Ids other than a record's own, each as likely, `[batch, count]` int64."""
        place = bits % (self.ids - 1)
        return place + tf.cast(place >= ids[:, tf.newaxis], tf.int64)


def _other_records(ids: tf.Tensor, bits: tf.Tensor, own: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Places of records whose id is not a record's own, each as likely, `[batch, count]` int32.

    Where there are none, they are the record's own (`own`, of the same shape); the second tensor
    says where there are any, `[batch, 1]`. The ids are `[batch]`, the bits to draw by `[batch,
    count]`.
    """
    order = tf.argsort(ids, stable=True)
    in_order = tf.gather(ids, order)
    # In this order the records of one id are neighbours: what is drawn is before or after them.
    first, end = (tf.searchsorted(in_order, ids, side)[:, tf.newaxis] for side in ("left", "right"))
    others = tf.size(ids) - (end - first)
    place = tf.cast(bits % tf.cast(tf.maximum(others, 1), tf.int64), tf.int32)
    place += tf.where(place >= first, end - first, 0)
    has_other = others > 0
    place = tf.where(has_other, place, 0)
    return tf.where(has_other, tf.gather(order, place), own), has_other


def _refuse_others_than_yes_or_no(targets: Sequence[Feature]) -> None:
    """Refuses labels whose 0 is not "no"."""
    if not targets:
        raise UserError("data.negatives: the task has no label that could be 0")
    for target in targets:
        if target.dtype == "string" or target.vocabulary_size not in (0, 2):
            raise UserError(
                f"data.negatives: the label {target.name!r} is not one of yes or no, so that 0 is "
                "not that of a negative; leave negatives out"
            )
