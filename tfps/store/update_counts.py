"""How many updates each ps has made, by which it is known how stale another one is."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfps.job_dir.report import StalenessCounts

BINS = 64


class Staleness:
    """Counts the updates of one ps by their staleness, on that ps.

    A batch's staleness is the number of other updates that were applied after its parameters were
    pulled and before its own gradients were pushed: those of other workers, and the worker's own
    where it pulls ahead.
    """

    def __init__(self, part: int, device: str):
        self.part = part
        self._device = device
        with tf.device(device):
            self._counts = tf.Variable(tf.zeros([BINS], tf.int64), trainable=False)

    def count(self, pulled_at: tf.Tensor, pushed_at: tf.Tensor) -> None:
        """Counts one update.

        Args:
            pulled_at: Number of updates when its parameters were pulled, scalar int64.
            pushed_at: Number of updates before it, scalar int64.
        """
        with tf.device(self._device):
            staleness = tf.minimum(pushed_at - pulled_at, BINS - 1)
            one = tf.ones([], tf.int64)
            self._counts.scatter_add(tf.IndexedSlices(one, staleness))

    def report(self) -> StalenessCounts:
        """Mean and histogram, on the chief.

        `histogram[k]` updates had the staleness k; the last bin that there can be, number 63, also
        holds all greater ones.
        """
        counts = [int(count) for count in self._counts.numpy()]
        updates = sum(counts)
        mean = sum(k * count for k, count in enumerate(counts)) / updates if updates else 0.0
        used = max((k for k, count in enumerate(counts) if count), default=-1) + 1
        return StalenessCounts(round(mean, 3), counts[:used])


def rate_scale(staleness: tf.Tensor, power: float) -> tf.Tensor:
    """What the learning rate of an update is multiplied by, scalar float32.

    Args:
        staleness: The update's, scalar int64.
    """
    return tf.pow(1.0 + tf.cast(staleness, tf.float32), -power)


class UpdateCounts:
    """A counter on every ps.

    A worker pulls some of them as versions of what it pulls: the number of updates before. One ps
    counts how stale updates were.

    Attributes:
        staleness: How stale the updates were, since this process began.
    """

    def __init__(
        self,
        devices: Sequence[str],
        staleness_part: int,
        versioned: Sequence[int],
        staleness_power: float = 0.0,
    ):
        """Creates the counters, all 0.

        Args:
            staleness_power: An update of staleness s has (1 + s)^-power times the learning rate;
                where it is not 0, all ps are versioned.
        """
        self._devices = devices
        self._versioned = versioned
        self._staleness_power = staleness_power
        self._counters = []
        for device in devices:
            with tf.device(device):
                self._counters.append(tf.Variable(tf.zeros([], tf.int64), trainable=False))
        self.staleness = Staleness(staleness_part, devices[staleness_part])

    def pull(self, after: Sequence[tf.Tensor] = ()) -> dict[int, tf.Tensor]:
        """Fetches the versions that belong to a batch, scalar int64, by the index of the ps."""
        return {part: self.read(part, after) for part in self._versioned}

    def pull_for_staleness(self) -> dict[int, tf.Tensor]:
        """Fetches the one version by which staleness is counted, as `pull` does."""
        return {self.staleness.part: self.read(self.staleness.part)}

    def add(
        self,
        part: int,
        after: Sequence[tf.Tensor],
        pulled_at: Mapping[int, tf.Tensor],
        updates: int | tf.Tensor = 1,
    ) -> tf.Tensor:
        """Counts updates on a ps, and where it is counted how stale they are; under its device.

        Args:
            after: What must be there before.
            pulled_at: The versions that the updates were computed with; none for an update that is
                not stale.
            updates: How many, scalar int64.

        Returns:
            The number of updates before them, scalar int64.
        """
        with tf.control_dependencies(after):
            before = self._counters[part].assign_add(updates) - updates
        if part == self.staleness.part:
            self.staleness.count(pulled_at.get(part, before), before)
        return before

    def rate_scale(
        self, part: int, step: tf.Tensor, pulled_at: Mapping[int, tf.Tensor]
    ) -> tf.Tensor | None:
        """What the learning rate of an update is multiplied by, scalar float32; None for 1.

        Args:
            step: Number of updates before it, scalar int64.
        """
        if not self._staleness_power:
            return None
        return rate_scale(step - pulled_at[part], self._staleness_power)

    def since(self, part: int, pulled_at: Mapping[int, tf.Tensor]) -> tf.Tensor:
        """How many updates a ps has made since it was pulled from, scalar int64."""
        with tf.device(self._devices[part]):
            return self._counters[part].read_value() - pulled_at[part]

    def steps(self) -> int:
        """Number of updates so far, over all workers; on the chief."""
        return int(self._counters[0].numpy())

    def set_steps(self, steps: int) -> None:
        """Sets the number of updates on every ps, after a restore."""
        for device, counter in zip(self._devices, self._counters, strict=True):
            with tf.device(device):
                counter.assign(steps)

    def read(self, part: int, after: Sequence[tf.Tensor] = ()) -> tf.Tensor:
        """The number of updates of a ps, scalar int64."""
        with tf.device(self._devices[part]), tf.control_dependencies(after):
            return self._counters[part].read_value()
