"""How a gradient changes parameters, on the ps that hold them."""

import abc
import copy
import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any, Protocol

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

_CLIPS = ("clipnorm", "global_clipnorm", "clipvalue")
_UNSUPPORTED = (
    "use_ema",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)


@dataclasses.dataclass(frozen=True)
class Slot:
    """A value that each parameter has beside its own, for the optimizer.

    An update makes `kept * slot + something` of it. A worker that has made several on a copy brings
    the something, and the ps makes as many updates from what the slot has become meanwhile: the
    result is that of all updates one after the other, however stale the copy was.

    Attributes:
        kept: What an update keeps of it: 1 for a sum over all updates, less for a moving average;
            None for the greatest value so far.
        is_square: Whether it is made of squares, and so never below 0.
        is_per_row: Whether a row has a single value of it, instead of one for each of its own.
    """

    start: float = 0.0
    kept: float | None = 1.0
    is_square: bool = False
    is_per_row: bool = False

    def increment(self, before: tf.Tensor, after: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
        """What updates add to what they keep of it.

        Args:
            updates: How many, float32, of a shape that can be broadcast to that of the slot.
        """
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
        """What missed updates make of the slot's values, `[u, dim]` or `[u, 1]`."""
        if self.kept in (None, 1.0):
            return value
        return value * tf.cast(missed.power(self.kept), tf.float32)

    def _kept_by(self, updates: tf.Tensor) -> tf.Tensor:
        return tf.ones([]) if self.kept == 1.0 else tf.pow(tf.constant(self.kept), updates)


class ChangedRates(Protocol):
    """Learning rates that a run's chief may change."""

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """That of an update, by its number."""

    def changes(self) -> tuple[tf.Tensor, tf.Tensor]:
        """All of them, as `ChangedSums` takes them."""


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
        fused: Whether `dense` is a single kernel of TensorFlow's, which holds the variable's and
            the slots' own locks while it runs. If not, the caller must let one `dense` at a time
            change a variable.
        drifts: Whether Keras moves a parameter whose gradient is zero, weight decay aside.
        takes_squares: Whether a slot is made of squares of gradients, element by element.
        endless_drift: The options with which Keras moves such a parameter further in every update,
            in words; empty where they do not.
        clip: Which of Keras's three ways to clip gradients is asked for, "" for none.
        config: The optimizer's config; `learning_rate` is a number or a schedule.
        settings: The optimizer as JSON-ready data, of which `rules.rule_of` makes the rule again.
    """

    slots: dict[str, Slot]
    fused: bool = False
    drifts: bool = False
    takes_squares: bool = False
    endless_drift: str = ""
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
        """Number of slots of which a row has a single value: of all of them, or of none."""
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
        """Whether the learning rate is a schedule of updates."""
        return not isinstance(self.config["learning_rate"], (int, float))

    def with_rates(self, rates: ChangedRates) -> "UpdateRule":
        """The rule with learning rates other than those of its config."""
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
        """Whether Keras moves a parameter whose gradient is zero."""
        return decays or self.drifts

    def changes_untouched(self, decays: bool) -> bool:
        """Whether Keras changes a parameter whose gradient is zero, or a slot of it."""
        return self.moves_untouched(decays) or self.averages

    def refusal(self, decays: bool) -> str:
        """Why no row can be caught up, with what it takes to change that; "" where it can."""
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
        self, rows: tf.Tensor, slots: Sequence[tf.Tensor], missed: MissedUpdates, decays: bool
    ) -> list[tf.Tensor]:
        """What missed updates make of rows and of their slots.

        Args:
            rows: As their last updates left them, `[u, dim]`.
            slots: Of the shape of `rows`, or `[u, 1]`, in the order of `slots`; empty where
                `moves_untouched` needs none and they are not asked for.
        """
        if decays:
            kept = self.sums(decays).kept(missed.first, missed.end)
            rows = rows * tf.cast(kept, tf.float32)
        if self.drifts:
            rows = rows + self.drift(slots, missed, decays)
        held = zip(self.slots.values(), slots, strict=False)
        return [rows, *(slot.aged(value, missed) for slot, value in held)]

    def drift(self, slots: Sequence[tf.Tensor], missed: MissedUpdates, decays: bool) -> tf.Tensor:
        """What missed updates add to rows, for rules with `drifts`.

        Args:
            slots: As the rows' last updates left them, each `[u, dim]`.

        Returns:
            `[u, dim]` float32.
        """
        raise NotImplementedError(type(self).__name__)

    def sums(self, decays: bool) -> StepSums:
        """Sums over missed updates of their learning rates and of what they keep of a row."""
        weight_decay = self.config["weight_decay"] if decays else 0.0
        if self._rates:
            return ChangedSums(*self._rates.changes(), weight_decay, self.series)
        if self.has_schedule or (self.series and self.series.betas):
            return _table(self, weight_decay)
        return ConstantSums(self.config["learning_rate"], weight_decay)

    def missed_series(self, missed: MissedUpdates, decays: bool) -> MissedSeries:
        """What missed updates add to rows by `series`, as a part of what the last one added."""
        assert self.series
        depends = decays or self.series.betas
        sums = self.sums(decays) if depends else ConstantSums(rate=0.0, weight_decay=0.0)
        return MissedSeries(self.series, sums, missed)

    def increments(
        self, before: Sequence[tf.Tensor], after: Sequence[tf.Tensor], updates: tf.Tensor
    ) -> list[tf.Tensor]:
        """What updates that were made on a copy add to parameters and to each slot.

        Args:
            updates: How many, float32, of a shape that can be broadcast to theirs.
        """
        return [
            slot.increment(old, new, updates)
            for slot, old, new in zip(self._held, before, after, strict=True)
        ]

    def merged(
        self, values: Sequence[tf.Tensor], increments: Sequence[tf.Tensor], updates: tf.Tensor
    ) -> list[tf.Tensor]:
        """What those updates make of parameters and slots that others have changed meanwhile."""
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
        self,
        rows: tf.Tensor,
        slots: Sequence[tf.Tensor],
        gradient: tf.Tensor,
        step: tf.Tensor,
        squares: tf.Tensor | None = None,
    ) -> list[tf.Tensor]:
        """New values of parameters and of their slots.

        Element by element, but for rules with slots per row: these know rows `[u, dim]` only.

        Args:
            rows: `[u, dim]`, or of any other shape.
            slots: Of the shape of `rows`, those per row `[u, 1]`, in the order of `slots`.
            step: Number of updates before this one, scalar int64.
            squares: What rules with `takes_squares` take for the gradient's square, of its shape;
                None for the square itself.
        """


def squared(gradient: tf.Tensor, squares: tf.Tensor | None) -> tf.Tensor:
    """What a rule's `sparse` takes for the gradient's square."""
    return tf.square(gradient) if squares is None else squares


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
def _table(rule: UpdateRule, weight_decay: float) -> ScheduledSums:
    """The sums of a rule whose learning rate is that of its config."""
    rate = rule.config["learning_rate"]
    schedule = of_schedule(rate) if rule.has_schedule else of_constant(rate)
    return ScheduledSums(schedule, weight_decay, rule.series)
