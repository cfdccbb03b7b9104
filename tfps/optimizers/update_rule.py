"""How a gradient changes parameters, on the ps that hold them."""

import abc
import copy
import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfps.errors import UserError
from tfps.model.keras_patches import schedule_class
from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.slot import Slot

_CLIPS = ("clipnorm", "global_clipnorm", "clipvalue")
_PLACES = 8  # at which a schedule is asked between two updates of a row
_UNSUPPORTED = (
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)


@dataclasses.dataclass(frozen=True)
class Update:
    """One change of one ps's part of the dense parameters.

    Attributes:
        variable: `[n]`.
        slots: The optimizer's state, each `[n]`, in the order of `UpdateRule.slots`.
        gradient: `[n]`.
        step: Number of updates before this one, scalar int64 on the ps.
    """

    variable: tf.Variable
    slots: Sequence[tf.Variable]
    gradient: tf.Tensor
    step: tf.Tensor


class UpdateRule(abc.ABC):
    """The mathematics of a Keras optimizer.

    `dense` changes whole variables; `sparse` computes what becomes of the rows that a batch
    touched. Both are called while a graph is traced, under the device of the ps that holds the
    parameters, with gradients that are clipped already, on parameters that are decayed already.
    Rules of equal optimizers are equal.

    Attributes:
        slots: The state that each parameter has, by name.
        fused: Whether `dense` is a single kernel of TensorFlow's, which holds the variable's and
            the slots' own locks while it runs. If not, the caller must let one `dense` at a time
            change a variable.
        drifts: Whether Keras moves a parameter whose gradient is zero, weight decay aside.
        endless_drift: The options with which Keras moves such a parameter further in every update,
            in words; empty where they do not.
        changes_nothing: Whether gradients need not be sent at all.
        clip: Which of Keras's three ways to clip gradients is asked for, "" for none.
        config: The optimizer's config; `learning_rate` is a number or a schedule.
        settings: The optimizer as JSON-ready data, of which `rules.rule_of` makes the rule again.
    """

    slots: dict[str, Slot]
    fused: bool = False
    drifts: bool = False
    endless_drift: str = ""
    changes_nothing: bool = False
    _rates: Callable[[tf.Tensor], tf.Tensor] | None = None
    _rate_scale: tf.Tensor | None = None

    def __init__(self, optimizer: keras.optimizers.Optimizer):
        self.config = _config(optimizer)
        for field in _UNSUPPORTED:
            if self.config.get(field):
                raise UserError(
                    f"optimizer {type(optimizer).__name__}: {field}={self.config[field]} is not "
                    "supported on parameter servers; leave it out"
                )
        self.clip = next((name for name in _CLIPS if (self.config[name] or 0) > 0), "")
        options = json.dumps({**optimizer.get_config(), "name": None}, sort_keys=True, default=repr)
        self._identity = type(self).__name__ + options
        self.settings = {"class_name": type(optimizer).__name__, "config": json.loads(options)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UpdateRule) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def signature(self) -> dict[str, Any]:
        """What must be equal for slots of one run to fit another."""
        per_row = {"slots_per_row": self.slots_per_row} if self.slots_per_row else {}
        return {"rule": type(self).__name__, "slots": list(self.slots), **per_row}

    @property
    def slots_per_row(self) -> int:
        """Number of slots of which a row has a single value: of all of them, or of none."""
        return sum(slot.is_per_row for slot in self.slots.values())

    def learning_rate(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of update number `step` (scalar int64, counted from 0)."""
        rate = self._rates or self.config["learning_rate"]
        if not isinstance(rate, (int, float)):
            rate = rate(step)
        rate = tf.cast(rate, tf.float32)
        return rate if self._rate_scale is None else rate * self._rate_scale

    def mean_learning_rate(self, missed: MissedUpdates) -> float | tf.Tensor:
        """The mean learning rate of missed updates, `[u, 1]` for a schedule.

        Of a schedule that of some of them, which lie as far apart as can be.
        """
        last = tf.maximum(missed.count - 1.0, 0.0)
        places = [missed.first + last * place for place in (np.arange(_PLACES) + 0.5) / _PLACES]
        rates = self.learning_rates(tf.concat(places, 1))
        return rates if isinstance(rates, float) else tf.reduce_mean(rates, 1, keepdims=True)

    def learning_rates(self, steps: tf.Tensor) -> float | tf.Tensor:
        """The learning rate of each of some updates.

        Args:
            steps: Their numbers, `[u, n]` float32, counted from 0; rounded.

        Returns:
            Of a schedule, and after `with_rates`, of the shape of `steps`, float32.
        """
        if self._rates:
            return self._rates(tf.round(steps))
        rate = self.config["learning_rate"]
        if isinstance(rate, (int, float)):
            return float(rate)
        # A schedule is made for one step, and may branch on it.
        numbers = tf.cast(tf.round(tf.reshape(steps, [-1])), tf.int64)
        rates = tf.vectorized_map(lambda step: tf.cast(rate(step), tf.float32), numbers)
        return tf.reshape(rates, tf.shape(steps))

    @property
    def has_schedule(self) -> bool:
        """Whether the learning rate is a schedule of updates."""
        return not isinstance(self.config["learning_rate"], (int, float))

    def with_rates(self, rates: Callable[[tf.Tensor], tf.Tensor]) -> "UpdateRule":
        """The rule with learning rates other than those of its config.

        Args:
            rates: Given the numbers of updates, of any shape, their learning rates, float32.
        """
        rule = copy.copy(self)
        rule._rates = rates
        return rule

    def scaled(self, scale: tf.Tensor | None) -> "UpdateRule":
        """The rule with a learning rate that is multiplied by a scalar float32, None for 1."""
        if scale is None:
            return self
        rule = copy.copy(self)
        rule._rate_scale = scale
        return rule

    def decay(self, step: tf.Tensor) -> tf.Tensor:
        """The part of itself that a parameter loses before update number `step`, scalar float32.

        Weight decay is decoupled from the gradient (Loshchilov and Hutter, 2019), as in Keras.
        """
        return self.config["weight_decay"] * self.learning_rate(step)

    def dense(self, update: Update) -> list[tf.Operation]:
        """Changes the whole variable and its slots; returns the operations that write.

        Here in plain operations; rules for which TensorFlow has a kernel override it.
        """
        variables = [update.variable, *update.slots]
        values, *slots = [variable.read_value() for variable in variables]
        changed = self.sparse(values, slots, update.gradient, update.step)
        return [
            variable.assign(value, read_value=False)
            for variable, value in zip(variables, changed, strict=True)
        ]

    def moves_untouched(self, decays: bool) -> bool:
        """Whether Keras moves a parameter whose gradient is zero.

        Args:
            decays: Whether weight decay applies to it.
        """
        return decays or self.drifts

    def changes_untouched(self, decays: bool) -> bool:
        """Whether Keras changes a parameter whose gradient is zero, or a slot of it.

        Args:
            decays: Whether weight decay applies to it.
        """
        return self.moves_untouched(decays) or self.averages

    def catch_up(
        self, rows: tf.Tensor, slots: Sequence[tf.Tensor], missed: MissedUpdates, decays: bool
    ) -> list[tf.Tensor]:
        """What missed updates make of rows and of their slots.

        Args:
            rows: As their last updates left them, `[u, dim]`.
            slots: Of the shape of `rows`, or `[u, 1]`, in the order of `slots`; empty where
                `moves_untouched` needs none and they are not asked for.
            missed: The updates.
            decays: Whether weight decay applies to the rows.

        Returns:
            The rows and each slot, of their shapes.
        """
        kept: float | tf.Tensor = 1.0
        if decays:
            kept = 1.0 - self.config["weight_decay"] * self.mean_learning_rate(missed)
            rows = rows * missed.power(kept)
        if self.drifts:
            rows = rows + self.drift(slots, missed, kept)
        held = zip(self.slots.values(), slots, strict=False)
        return [rows, *(slot.aged(value, missed) for slot, value in held)]

    def drift(
        self, slots: Sequence[tf.Tensor], missed: MissedUpdates, kept: float | tf.Tensor
    ) -> tf.Tensor:
        """What missed updates add to rows, for rules with `drifts`.

        Args:
            slots: As the rows' last updates left them, each `[u, dim]`.
            missed: The updates.
            kept: What each of them keeps of what a parameter was before it, a scalar or `[u, 1]`.

        Returns:
            `[u, dim]`.
        """
        raise NotImplementedError(type(self).__name__)

    def increments(
        self, before: Sequence[tf.Tensor], after: Sequence[tf.Tensor], updates: tf.Tensor
    ) -> list[tf.Tensor]:
        """What updates that were made on a copy add to parameters and to each slot.

        Args:
            before: The parameters and each slot before them.
            after: The same after them.
            updates: How many, float32, of a shape that can be broadcast to theirs.
        """
        return [
            slot.increment(old, new, updates)
            for slot, old, new in zip(self._held, before, after, strict=True)
        ]

    def merged(
        self, values: Sequence[tf.Tensor], increments: Sequence[tf.Tensor], updates: tf.Tensor
    ) -> list[tf.Tensor]:
        """What those updates make of parameters and slots that others have changed meanwhile.

        Args:
            values: The parameters and each slot as they are now.
            increments: What `increments` returned.
            updates: How many, as for `increments`.
        """
        return [
            slot.merged(value, increment, updates)
            for slot, value, increment in zip(self._held, values, increments, strict=True)
        ]

    @property
    def averages(self) -> bool:
        """Whether a slot is a moving average, so that `merged` asks how many updates there were."""
        return any(slot.kept not in (None, 1.0) for slot in self.slots.values())

    @property
    def _held(self) -> list[Slot]:
        """The parameter, which is a sum of changes, and its slots."""
        return [Slot(), *self.slots.values()]

    @abc.abstractmethod
    def sparse(
        self, rows: tf.Tensor, slots: Sequence[tf.Tensor], gradient: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """New values of parameters and of their slots.

        Element by element, but for rules with slots per row: these know rows `[u, dim]` only.

        Args:
            rows: `[u, dim]`, or of any other shape.
            slots: Of the shape of `rows`, those per row `[u, 1]`, in the order of `slots`.
            gradient: Of the shape of `rows`.
            step: Number of updates before this one, scalar int64.

        Returns:
            The rows and each slot, of their shapes.
        """


def _config(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    """The optimizer's config, its learning rate a number or a `LearningRateSchedule`."""
    try:
        config = optimizer.get_config()
        rate = config["learning_rate"]
        if not isinstance(rate, (int, float)):
            with keras.saving.custom_object_scope(schedule_class(optimizer)):
                rate = keras.optimizers.schedules.deserialize(rate)
            if not isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
                raise TypeError(f"it is {rate!r}")
    except (NotImplementedError, OSError, TypeError, ValueError) as error:
        raise UserError(
            f"optimizer {type(optimizer).__name__}: its learning rate cannot be rebuilt from its "
            f"config ({error}); give a number or a LearningRateSchedule with get_config()"
        ) from None
    return {**config, "learning_rate": rate}
