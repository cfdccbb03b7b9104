"""Where dense parameters and state lie: variables end to end, cut without regard to them."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class DenseLayout:
    """Variables laid end to end in one flat float32 buffer, cut into equal parts.

    Cuts ignore the variables' own boundaries, so that every ps holds the same number of bytes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    parts: int

    @property
    def sizes(self) -> list[int]:
        """Number of values of each variable."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def total(self) -> int:
        """Number of values of the whole buffer."""
        return sum(self.sizes)

    def signature(self) -> dict[str, list[int]]:
        """The shape of each variable by its path, as JSON-ready data."""
        pairs = zip(self.names, self.shapes, strict=True)
        return {name: list(shape) for name, shape in pairs}

    def bounds(self, part: int) -> tuple[int, int]:
        """First value of a part and the one after its last."""
        return self.total * part // self.parts, self.total * (part + 1) // self.parts

    def sizes_in(self, part: int) -> list[int]:
        """How many values of each variable lie in a part."""
        first, end = self.bounds(part)
        ends = list(itertools.accumulate(self.sizes))
        return [
            max(0, min(after, end) - max(after - size, first))
            for after, size in zip(ends, self.sizes, strict=True)
        ]

    def spread(self, part: int, values: Sequence[bool]) -> np.ndarray:
        """For every value of a part, what holds for its variable, `[n]` bool."""
        return np.repeat(np.asarray(values, bool), self.sizes)[slice(*self.bounds(part))]

    def each(self, values: Sequence[float]) -> tf.Tensor:
        """For every value of the whole buffer, what holds for its variable.

        A graph that uses it does not grow with the buffer.

        Returns:
            `[total]`, or a scalar where all variables have the same.
        """
        pairs = zip(values, self.sizes, strict=True)
        runs = [
            (value, sum(size for _, size in run))
            for value, run in itertools.groupby(pairs, lambda pair: pair[0])
        ]
        if len(runs) == 1:
            return tf.constant(runs[0][0])
        return tf.concat([tf.fill([count], value) for value, count in runs], 0)

    def cut(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """The parts of a whole buffer `[total]`."""
        if self.parts == 1:
            return [flat]
        bounds = map(self.bounds, range(self.parts))
        # One operation for all parts: what is in every step for each ps makes the graph large.
        return tf.split(flat, [end - first for first, end in bounds])

    def join(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """The whole buffer `[total]` from its parts."""
        return parts[0] if self.parts == 1 else tf.concat(list(parts), 0)

    def unflatten(self, flat: tf.Tensor) -> list[tf.Tensor]:
        """Every variable's value from the whole buffer `[total]`."""
        if not self.shapes:
            return []
        slices = tf.split(flat, self.sizes)
        return [
            tf.reshape(slice_, shape) for slice_, shape in zip(slices, self.shapes, strict=True)
        ]


class StateRun(NamedTuple):
    """Neighbouring state variables that are all changed by training, or all left as they are."""

    changes: bool
    first: int
    size: int


@dataclasses.dataclass(frozen=True)
class StateLayout:
    """A model's state: those variables that training changes, and those that no step does."""

    whole: DenseLayout
    changes: tuple[bool, ...]

    @property
    def changing(self) -> DenseLayout:
        """The variables that training changes."""
        return self._only(True)

    @property
    def fixed(self) -> DenseLayout:
        """The variables that no step changes, such as those of a frozen backbone."""
        return self._only(False)

    @property
    def runs(self) -> list[StateRun]:
        """Neighbours of one kind, in order."""
        found, first = [], 0
        pairs = zip(self.changes, self.whole.sizes, strict=True)
        for changes, run in itertools.groupby(pairs, lambda pair: pair[0]):
            found.append(StateRun(changes, first, sum(size for _, size in run)))
            first += found[-1].size
        return found

    def changing_of(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Those of all variables' values that training changes."""
        return list(itertools.compress(values, self.changes))

    def merge(self, changing: Sequence[tf.Tensor], fixed: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """All variables' values in the model's order."""
        kinds = {True: iter(changing), False: iter(fixed)}
        return [next(kinds[changes]) for changes in self.changes]

    def add(self, values: Sequence[tf.Tensor], change: tf.Tensor) -> list[tf.Tensor]:
        """All variables' values after a change `[n]` of those that training changes."""
        differences = iter(self.changing.unflatten(change))
        return [
            value + next(differences) if changes else value
            for value, changes in zip(values, self.changes, strict=True)
        ]

    def _only(self, changes: bool) -> DenseLayout:
        which = [changes is each for each in self.changes]
        names = tuple(itertools.compress(self.whole.names, which))
        shapes = tuple(itertools.compress(self.whole.shapes, which))
        return DenseLayout(names, shapes, 1)


def lay_flat(variables: Sequence[Any], parts: int) -> DenseLayout:
    """The layout of variables in so many parts."""
    return DenseLayout(
        tuple(v.path for v in variables), tuple(tuple(v.shape) for v in variables), parts
    )
