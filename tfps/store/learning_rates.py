"""The learning rate of a run whose chief may change it, on every ps."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfps.optimizers.update_rule import UpdateRule

_KEPT = 128  # of the last changes
_NEVER = np.iinfo(np.int64).max

# Pairs of an update's number and the learning rate from it on, in the order of the updates.
Changes = Sequence[tuple[int, float]]


class LearningRates:
    """What the learning rate of each update was, and is from now on.

    Earlier ones are kept for rows of tables, which make up for updates long after these were made;
    of very many changes the last. The ps read them from variables: a change traces nothing again.
    """

    def __init__(self, devices: Sequence[str], first: float):
        self._devices = devices
        self._numbers: list[tf.Variable] = []
        self._rates: list[tf.Variable] = []
        for device in devices:
            with tf.device(device):
                # Of a fixed shape: a worker cannot be given a variable on a ps without one.
                numbers, rates = tf.fill([_KEPT], _NEVER), tf.zeros([_KEPT])
                self._numbers.append(tf.Variable(numbers, trainable=False))
                self._rates.append(tf.Variable(rates, trainable=False))
        self.restore([(0, first)])

    @property
    def now(self) -> float:
        """The learning rate of the next update, as float32 has it; on the chief."""
        return self._changes[-1][1]

    @property
    def changes(self) -> Changes:
        """Those that are kept; on the chief."""
        return tuple(self._changes)

    def set(self, rate: float, step: int) -> None:
        """Changes the learning rate, while no worker is changing the parameters; on the chief."""
        self.restore([*(change for change in self._changes if change[0] < step), (step, rate)])

    def restore(self, changes: Changes) -> None:
        """Takes over learning rates in place of those that there are; on the chief.

        Args:
            changes: At least one. The first is that of all updates before, too.
        """
        self._changes = [(number, float(np.float32(rate))) for number, rate in changes[-_KEPT:]]
        numbers, rates = np.full([_KEPT], _NEVER), np.zeros([_KEPT], np.float32)
        for place, (number, rate) in enumerate(self._changes):
            numbers[place], rates[place] = number, rate
        for part, device in enumerate(self._devices):
            with tf.device(device):
                self._numbers[part].assign(numbers)
                self._rates[part].assign(rates)

    def of_part(self, part: int) -> "RatesOfPart":
        """The learning rates as a ps has them."""
        return RatesOfPart(self._devices[part], self._numbers[part], self._rates[part])


class RatesOfPart:
    """Learning rates that are read from a ps, and computed with wherever that is asked for."""

    def __init__(self, device: str, numbers: tf.Variable, rates: tf.Variable):
        self._device, self._numbers, self._rates = device, numbers, rates

    def changes(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The numbers of the first updates that have each learning rate, and these."""
        with tf.device(self._device):
            return self._numbers.read_value(), self._rates.read_value()

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of an update, float32."""
        numbers, rates = self.changes()
        place = tf.searchsorted(numbers, [tf.cast(step, tf.int64)], side="right")[0] - 1
        return tf.gather(rates, tf.maximum(place, 0))


def rules_by_part(rule: UpdateRule, rates: LearningRates | None, parts: int) -> list[UpdateRule]:
    """A rule as each ps follows it.

    Args:
        rates: The learning rates, None where they are the rule's own.
    """
    if rates is None:
        return [rule] * parts
    return [rule.with_rates(rates.of_part(part)) for part in range(parts)]
