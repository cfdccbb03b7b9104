"""What a batch asks of the tables on the ps, which takes no ps to know."""

from collections.abc import Sequence

import tensorflow as tf

from tfps.model.stateless_model import Lookup
from tfps.store.asked_ids import AskedIds
from tfps.store.layout import StoreLayout
from tfps.store.lookups import ids_of_group
from tfps.store.messages import PulledRows
from tfps.store.row_group import RowGroup


class RowFinder:
    """Finds out which rows lookups ask for, by group of tables.

    It is traced once, however many steps a closure is unrolled into: what is asked of the ps is a
    third of a step's operations.
    """

    def __init__(self, layout: StoreLayout, groups: Sequence[RowGroup]):
        self._layout = layout
        self._groups = groups
        self._find, self._distinct = (
            tf.function(what, autograph=False, reduce_retracing=True)
            for what in (self._found, self._each_once)
        )

    def find(self, lookups: Sequence[Lookup]) -> list[PulledRows]:
        """What each ps is to be asked for, by group; without values."""
        found: list[PulledRows] = self._find(list(lookups))
        return found

    def distinct(self, lookups: Sequence[Lookup]) -> list[tuple[AskedIds, tf.Tensor]]:
        """What the lookups ask for by group, each row once, as `AskedIds.distinct` gives it."""
        asked: list[tuple[AskedIds, tf.Tensor]] = self._distinct(list(lookups))
        return asked

    def _found(self, lookups: list[Lookup]) -> list[PulledRows]:
        asked = self._asked(lookups)
        return [group.find(some) for group, some in zip(self._groups, asked, strict=True)]

    def _each_once(self, lookups: list[Lookup]) -> list[tuple[AskedIds, tf.Tensor]]:
        return [some.distinct() for some in self._asked(lookups)]

    def _asked(self, lookups: list[Lookup]) -> list[AskedIds]:
        return [ids_of_group(self._layout, index, lookups) for index in range(len(self._groups))]
