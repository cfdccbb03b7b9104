"""How a gradient changes parameters, on the ps that hold them."""

import abc
import copy
import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import keras
import tensorflow as tf

from tfps.errors import UserError
from tfps.model.keras_patches import schedule_class
from tfps.optimizers.missed_updates import MissedSeries, MissedUpdates
from tfps.optimizers.outlook import Series
from tfps.optimizers.step_sums import (
    ChangedSums,
    ConstantSums,
    ScheduledSums,
    StepSums,
    of_constant,
    of_schedule,
)

Tensors = Sequence[tf.Tensor]
_CLIPS = ("clipnorm", "global_clipnorm", "clipvalue")
_UNSUPPORTED = ("use_ema", "loss_scale_factor", "gradient_accumulation_steps")


@dataclasses.dataclass(frozen=True)
class Slot:
    """A value that the optimizer keeps for each parameter.

    An update makes `kept * slot + something` of it. A worker that has made several on a copy brings
    the something, and the ps makes as many updates from what the slot has become meanwhile: the
    result is that of all updates one after the other, however stale the copy was.
    """

    start: float = 0.0
    # What an update keeps: 1 for a sum over all updates, less for a moving average; None for the
    # greatest value so far.
    kept: float | None = 1.0
    is_square: bool = False  # made of squares, and so never below 0
    is_per_row: bool = False  # a single value for a row, instead of one for each of its own

    def increment(self, before: tf.Tensor, after: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
        """What updates add to what they keep of it."""
        if self.kept is None:
            return after
        added = after - self._kept_by(updates) * before
        # Rounding of a large value before must not outweigh small squares.
        return tf.maximum(added, 0.0) if self.is_square else added

    def merged(self, value: tf.Tensor, increment: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
        """What those updates make of another value of the slot."""
        if self.kept is None:
            return tf.maximum(value, increment)
        return self._kept_by(updates) * value + increment

    def aged(self, value: tf.Tensor, missed: MissedUpdates) -> tf.Tensor:
        """The slot's values after missed updates, `[u, dim]` or `[u, 1]`."""
        if self.kept in (None, 1.0):
            return value
        return value * tf.cast(missed.power(self.kept), tf.float32)

    def _kept_by(self, updates: tf.Tensor) -> tf.Tensor:
        return tf.ones([]) if self.kept == 1.0 else tf.pow(tf.constant(self.kept), updates)


class ChangedRates(Protocol):
    """Learning rates that a run's chief may change."""

    def __call__(self, step: tf.Tensor) -> tf.Tensor: ...

    def changes(self) -> tuple[tf.Tensor, tf.Tensor]: ...


@dataclasses.dataclass(frozen=True)
class Update:
    """One change of one ps's part of the dense parameters."""

    variable: tf.Variable
    slots: Sequence[tf.Variable]
    gradient: tf.Tensor
    step: tf.Tensor


class RowUpdate(NamedTuple):
    """One change of rows `[u, dim]`, or of values of any other shape, and of their slots."""

    rows: tf.Tensor
    slots: Tensors  # of the shape of `rows`, those per row `[u, 1]`, in `UpdateRule.slots`' order
    gradient: tf.Tensor
    step: tf.Tensor  # number of updates before this one, scalar int64
    squares: tf.Tensor | None = None  # in place of the gradient's square, for `takes_squares`

    @property
    def squared(self) -> tf.Tensor:
        return tf.square(self.gradient) if self.squares is None else self.squares


class UpdateRule(abc.ABC):
    """The mathematics of a Keras optimizer.

    `dense` changes whole variables; `sparse` computes what becomes of the rows that a batch
    touched. Both are called while a graph is traced, under the device of the ps that holds the
    parameters, with gradients that are clipped already, on parameters that are decayed already.
    Rules of equal optimizers are equal.
    """

    slots: dict[str, Slot]
    # Whether `dense` is a single kernel of TensorFlow's, which holds the locks of the variable and
    # the slots while it runs. If not, the caller must let one `dense` at a time change a variable.
    fused: bool = False
    drifts: bool = False  # whether Keras moves what has no gradient, weight decay aside
    takes_squares: bool = False  # whether a slot is made of squared gradients, value by value
    endless_drift: str = ""  # the options with which Keras moves such values further for ever
    changes_nothing: bool = False
    series: Series | None = None
    _rates: ChangedRates | None = None
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
        """Number of slots with a single value per row: all of them, or none."""
        return sum(slot.is_per_row for slot in self.slots.values())

    def learning_rate(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of update number `step` (scalar int64, counted from 0)."""
        rate = self._rates or self.config["learning_rate"]
        if not isinstance(rate, (int, float)):
            rate = rate(step)
        rate = tf.cast(rate, tf.float32)
        return rate if self._rate_scale is None else rate * self._rate_scale

    @property
    def has_schedule(self) -> bool:
        return not isinstance(self.config["learning_rate"], (int, float))

    def with_rates(self, rates: ChangedRates) -> "UpdateRule":
        rule = copy.copy(self)
        rule._rates = rates
        return rule

    def scaled(self, scale: tf.Tensor | None) -> "UpdateRule":
        """The rule with its learning rate times a scalar float32, None for 1."""
        if scale is None:
            return self
        rule = copy.copy(self)
        rule._rate_scale = scale
        return rule

    def decay(self, step: tf.Tensor) -> tf.Tensor:
        """The part of itself that a parameter loses before update number `step`, scalar float32."""
        # Weight decay is decoupled from the gradient (Loshchilov and Hutter, 2019), as in Keras.
        return self.config["weight_decay"] * self.learning_rate(step)

    def dense(self, update: Update) -> list[tf.Operation]:
        """Changes the whole variable and its slots; here in plain operations, without a kernel."""
        variables = [update.variable, *update.slots]
        values, *slots = [variable.read_value() for variable in variables]
        changed = self.sparse(RowUpdate(values, slots, update.gradient, update.step))
        return [
            variable.assign(value, read_value=False)
            for variable, value in zip(variables, changed, strict=True)
        ]

    def kernel(
        self, apply: Callable[..., Any], update: Update, slots: Sequence[str], **options: Any
    ) -> list[tf.Operation]:
        """What `dense` does with a kernel of TensorFlow's, which gives the slots these names."""
        handles = {name: slot.handle for name, slot in zip(slots, update.slots, strict=True)}
        rate, gradient = self.learning_rate(update.step), update.gradient
        return [apply(var=update.variable.handle, lr=rate, grad=gradient, **handles, **options)]

    def moves_untouched(self, decays: bool) -> bool:
        """Whether Keras moves a parameter whose gradient is zero."""
        return decays or self.drifts

    def changes_untouched(self, decays: bool) -> bool:
        """Whether Keras changes a parameter whose gradient is zero, or a slot of it."""
        return self.moves_untouched(decays) or self.averages

    def refusal(self, decays: bool) -> str:
        """Why missed updates cannot be made of rows, and the fix; "" where they can."""
        if self.endless_drift:
            return (
                f"{self.endless_drift} Keras moves a row that no batch touches further in every "
                "update; take other options"
            )
        if not (self.series and decays and self.has_schedule):
            return ""
        if self.sums(decays).has_outlooks:
            return ""
        return (
            f"weight_decay={self.config['weight_decay']} times the learning rate is above "
            f"{1.0 - self.series.ratio:.3g} (1 less {self.series.ratio:.6g}, by which its momentum "
            "falls) in many updates of the schedule and below in others, which no sum is known "
            "for; take a lower weight_decay"
        )

    def catch_up(
        self, rows: tf.Tensor, slots: Tensors, missed: MissedUpdates, decays: bool
    ) -> list[tf.Tensor]:
        """Rows `[u, dim]` and their slots after missed updates."""
        # Slots are empty where `moves_untouched` needs none and they are not asked for.
        if decays:
            kept = self.sums(decays).kept(missed.first, missed.end)
            rows = rows * tf.cast(kept, tf.float32)
        if self.drifts:
            rows = rows + self.drift(slots, missed, decays)
        held = zip(self.slots.values(), slots, strict=False)
        return [rows, *(slot.aged(value, missed) for slot, value in held)]

    def drift(self, slots: Tensors, missed: MissedUpdates, decays: bool) -> tf.Tensor:
        """What missed updates add to rows, `[u, dim]` float32, for rules with `drifts`."""
        raise NotImplementedError(type(self).__name__)

    def sums(self, decays: bool, series: Series | None = None) -> StepSums:
        """Sums over missed updates of their learning rates and of what they keep of a row."""
        weight_decay, series = self.config["weight_decay"] if decays else 0.0, series or self.series
        if self._rates:
            return ChangedSums(*self._rates.changes(), weight_decay, series)
        if self.has_schedule or (series and series.betas):
            return _table(self, weight_decay, series)
        return ConstantSums(self.config["learning_rate"], weight_decay)

    def missed_series(self, missed: MissedUpdates, decays: bool) -> MissedSeries:
        """What missed updates add to rows by `series`, as a part of what the last one added."""
        assert self.series
        depends = decays or self.series.betas
        sums = self.sums(decays) if depends else ConstantSums(rate=0.0, weight_decay=0.0)
        return MissedSeries(self.series, sums, missed)

    def increments(self, before: Tensors, after: Tensors, updates: tf.Tensor) -> list[tf.Tensor]:
        """What updates that were made on a copy add to parameters and to each slot."""
        return [
            slot.increment(old, new, updates)
            for slot, old, new in zip(self._held, before, after, strict=True)
        ]

    def merged(self, values: Tensors, increments: Tensors, updates: tf.Tensor) -> list[tf.Tensor]:
        """What those updates make of parameters and slots that others have changed meanwhile."""
        return [
            slot.merged(value, increment, updates)
            for slot, value, increment in zip(self._held, values, increments, strict=True)
        ]

    @property
    def averages(self) -> bool:
        """Whether a slot is a moving average, so that `merged` needs the number of updates."""
        return any(slot.kept not in (None, 1.0) for slot in self.slots.values())

    @property
    def _held(self) -> list[Slot]:
        """The parameter, which is a sum of changes, and its slots."""
        return [Slot(), *self.slots.values()]

    @abc.abstractmethod
    def sparse(self, update: RowUpdate) -> list[tf.Tensor]:
        """New values of parameters and of their slots.

        Element by element, but for rules with slots per row: these know rows `[u, dim]` only.
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


@functools.lru_cache(maxsize=128)
def _table(rule: UpdateRule, weight_decay: float, series: Series | None) -> ScheduledSums:
    """The sums of a rule whose learning rate is that of its config."""
    rate = rule.config["learning_rate"]
    schedule = of_schedule(rate) if rule.has_schedule else of_constant(rate)
    return ScheduledSums(schedule, weight_decay, series)
