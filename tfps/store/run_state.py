"""What the ps keep of a run: learning rates, numbers of updates, the loss scale."""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfps.job_dir.report import StalenessCounts
from tfps.model.loss import LossScaling
from tfps.optimizers.update_rule import Tensors, UpdateRule
from tfps.store.partitioned_variable import TensorSlice

BINS = 64  # of staleness
_KEPT = 128  # changes of the learning rate, the last ones
_NEVER = np.iinfo(np.int64).max
# Pairs of an update's number and the learning rate from it on, in the order of the updates.
Changes = Sequence[tuple[int, float]]
# Numbers of updates before a pull, scalar int64, by the index of the ps.
Versions = Mapping[int, tf.Tensor]


class LossScale:
    """The loss scale of a run, on a ps.

    The algorithm is that of `keras.optimizers.LossScaleOptimizer`: a step whose gradients are not
    all finite changes no parameter and halves the scale; `growth_steps` finite ones in a row double
    it. Several workers share one scale: each divides by the scale that it pulled, and halves or
    doubles only a scale that is still the one it used. No lock is taken: concurrent updates can
    only lose a count, or a change that the next step makes.
    """

    def __init__(self, scaling: LossScaling, device: str):
        self._scaling, self._device = scaling, device
        with tf.device(device):
            start = tf.constant([scaling.initial_scale, 0.0, 0.0])
            self._values = tf.Variable(start, trainable=False)  # scale, good steps, skipped steps

    def pull(self, after: Tensors = ()) -> tf.Tensor:
        with tf.device(self._device), tf.control_dependencies(after):
            return self._values.read_value()[0]

    @staticmethod
    def all_finite(gradients: Tensors) -> tf.Tensor:
        return tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(g)) for g in gradients]))

    def update(self, used: tf.Tensor, finite: tf.Tensor) -> tf.Operation:
        with tf.device(self._device):
            values = self.stepped(self._values.read_value(), used, finite)
            return self._values.assign(values, read_value=False)

    def pull_whole(self) -> tf.Tensor:
        """The scale, good steps in a row and skipped steps, `[3]` float32."""
        with tf.device(self._device):
            return self._values.read_value()

    def stepped(self, values: tf.Tensor, used: tf.Tensor, finite: tf.Tensor) -> tf.Tensor:
        scale, good, skipped = tf.unstack(values)
        is_current = tf.equal(scale, used)
        full = good + 1 >= self._scaling.growth_steps
        grown = tf.where(full & is_current, scale * 2.0, scale)
        halved = tf.where(is_current, scale * 0.5, scale)
        return tf.where(
            finite,
            tf.stack([grown, tf.where(full, 0.0, good + 1), skipped]),
            tf.stack([halved, 0.0, skipped + 1]),
        )

    def push(self, begun: tf.Tensor, ended: tf.Tensor) -> tf.Operation:
        """Makes the steps that a worker has made by itself."""
        # A scale that others have changed meanwhile stays as it is: they have found out the same.
        both = tf.stack([begun, ended])
        with tf.device(self._device):
            begun, ended = tf.unstack(both)
            now = self._values.read_value()
            skipped = now[2] + ended[2] - begun[2]
            is_current = tf.equal(now[0], begun[0])
            kept = tf.stack([now[0], tf.where(ended[2] > begun[2], 0.0, now[1]), skipped])
            taken = tf.stack([ended[0], ended[1], skipped])
            return self._values.assign(tf.where(is_current, taken, kept), read_value=False)

    def read(self) -> tuple[float, int]:
        scale, _, skipped = self._values.numpy()
        return float(scale), int(skipped)

    def slice_(self) -> TensorSlice:
        return TensorSlice("loss_scale", (3,), 0, 3, self._device, self._values)


class Staleness:
    """Counts the updates of one ps by their staleness, on that ps.

    A batch's staleness is the number of other updates that were applied after its parameters were
    pulled and before its own gradients were pushed: those of other workers, and the worker's own
    where it pulls ahead.
    """

    def __init__(self, part: int, device: str):
        self.part, self._device = part, device
        with tf.device(device):
            self._counts = tf.Variable(tf.zeros([BINS], tf.int64), trainable=False)

    def count(self, pulled_at: tf.Tensor, pushed_at: tf.Tensor) -> None:
        """Counts an update; the arguments are numbers of updates before, scalar int64."""
        with tf.device(self._device):
            staleness = tf.minimum(pushed_at - pulled_at, BINS - 1)
            one = tf.ones([], tf.int64)
            self._counts.scatter_add(tf.IndexedSlices(one, staleness))

    def report(self) -> StalenessCounts:
        """Mean and histogram, on the chief; the last of 64 bins also holds all greater ones."""
        counts = [int(count) for count in self._counts.numpy()]
        updates = sum(counts)
        mean = sum(k * count for k, count in enumerate(counts)) / updates if updates else 0.0
        used = max((k for k, count in enumerate(counts) if count), default=-1) + 1
        return StalenessCounts(round(mean, 3), counts[:used])


class UpdateCounts:
    """A counter on every ps.

    A worker pulls some of them as versions of what it pulls: the number of updates before. One ps
    counts how stale updates were since this process began.
    """

    def __init__(
        self,
        devices: Sequence[str],
        staleness_part: int,
        versioned: Sequence[int],
        staleness_power: float = 0.0,
    ):
        self._devices, self._versioned, self._staleness_power = devices, versioned, staleness_power
        self._counters = []
        for device in devices:
            with tf.device(device):
                self._counters.append(tf.Variable(tf.zeros([], tf.int64), trainable=False))
        self.staleness = Staleness(staleness_part, devices[staleness_part])

    def pull(self, after: Tensors = ()) -> dict[int, tf.Tensor]:
        """The versions of a batch, scalar int64, by the index of the ps."""
        return {part: self.read(part, after) for part in self._versioned}

    def add(
        self, part: int, after: Tensors, pulled_at: Versions, updates: int | tf.Tensor = 1
    ) -> tf.Tensor:
        """Counts updates and their staleness under the ps's device; returns the number before."""
        with tf.control_dependencies(after):
            before = self._counters[part].assign_add(updates) - updates
        if part == self.staleness.part:
            self.staleness.count(pulled_at.get(part, before), before)
        return before

    def rate_scale(self, part: int, step: tf.Tensor, pulled_at: Versions) -> tf.Tensor | None:
        """What the learning rate of an update is multiplied by, scalar float32; None for 1."""
        if not self._staleness_power:
            return None
        staleness = tf.cast(step - pulled_at[part], tf.float32)
        return tf.pow(1.0 + staleness, -self._staleness_power)

    def since(self, part: int, pulled_at: Versions) -> tf.Tensor:
        with tf.device(self._devices[part]):
            return self._counters[part].read_value() - pulled_at[part]

    def steps(self) -> int:
        return int(self._counters[0].numpy())

    def set_steps(self, steps: int) -> None:
        for device, counter in zip(self._devices, self._counters, strict=True):
            with tf.device(device):
                counter.assign(steps)

    def read(self, part: int, after: Tensors = ()) -> tf.Tensor:
        with tf.device(self._devices[part]), tf.control_dependencies(after):
            return self._counters[part].read_value()


class LearningRates:
    """The learning rate of each update so far, and of those to come; the chief may change it.

    Earlier ones are kept for rows of tables, which make missed updates late; of very many changes
    the last. The ps read them from variables: a change traces nothing again.
    """

    def __init__(self, devices: Sequence[str], first: float):
        self._parts = [RatesOfPart(device) for device in devices]
        self.restore([(0, first)])

    @classmethod
    def of_checkpoint(cls, changes: Changes) -> "LearningRates":
        """Those that a checkpoint has, in this process."""
        found = cls(["/device:CPU:0"], 0.0)
        found.restore(changes)
        return found

    @property
    def now(self) -> float:
        """The learning rate of the next update, as float32 has it; on the chief."""
        return self._changes[-1][1]

    @property
    def changes(self) -> Changes:
        return tuple(self._changes)

    def set(self, rate: float, step: int) -> None:
        """Changes the learning rate, while no worker is changing the parameters; on the chief."""
        self.restore([*(change for change in self._changes if change[0] < step), (step, rate)])

    def restore(self, changes: Changes) -> None:
        """Replaces all learning rates; the first is that of all updates before, too."""
        self._changes = [(number, float(np.float32(rate))) for number, rate in changes[-_KEPT:]]
        numbers, rates = np.full([_KEPT], _NEVER), np.zeros([_KEPT], np.float32)
        for place, (number, rate) in enumerate(self._changes):
            numbers[place], rates[place] = number, rate
        for part in self._parts:
            part.assign(numbers, rates)

    def of_part(self, part: int) -> "RatesOfPart":
        return self._parts[part]


class RatesOfPart:
    """Learning rates that are read from a ps, and used wherever that is asked for."""

    def __init__(self, device: str):
        self._device = device
        with tf.device(device):
            # Of a fixed shape: a worker cannot be given a variable on a ps without one.
            self._numbers = tf.Variable(tf.fill([_KEPT], _NEVER), trainable=False)
            self._rates = tf.Variable(tf.zeros([_KEPT]), trainable=False)

    def assign(self, numbers: np.ndarray, rates: np.ndarray) -> None:
        with tf.device(self._device):
            self._numbers.assign(numbers)
            self._rates.assign(rates)

    def changes(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The numbers of the first updates with each learning rate, and these."""
        with tf.device(self._device):
            return self._numbers.read_value(), self._rates.read_value()

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        numbers, rates = self.changes()
        place = tf.searchsorted(numbers, [tf.cast(step, tf.int64)], side="right")[0] - 1
        return tf.gather(rates, tf.maximum(place, 0))


def rules_by_part(rule: UpdateRule, rates: LearningRates | None, parts: int) -> list[UpdateRule]:
    if rates is None:
        return [rule] * parts
    return [rule.with_rates(rates.of_part(part)) for part in range(parts)]
