"""Learning rates of schedules, and what ranges of updates add up to."""

import abc
import copy
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from keras.optimizers import schedules

from tfps.optimizers import outlook
from tfps.optimizers.outlook import END, Outlooks, Series

_MOST_BREAKS = 1024
_FLOAT64, _FLOAT32 = 1e-12, 3e-7
# The learning rates of updates, float64, by their numbers, int64 of the same shape.
Rates = Callable[[np.ndarray], np.ndarray]
RATE, SQUARE, LOG_KEPT, FLIPS = range(4)
_LEAST_LOG = -70.0  # of what an update keeps that keeps nothing
_MOST_LOG = 50.0
_LEAST_APART = 1e-9  # of what an update keeps and of a series' ratio
MOST_LOOKED_UP = 1 << 16  # values that a graph holds, of 8 bytes


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The learning rates of updates."""

    as_keras: Rates
    smooth: Rates  # without the noise of float32, where that can be had
    breaks: Sequence[int]
    noise: float


def of_constant(rate: float) -> Schedule:
    def rates(steps: np.ndarray) -> np.ndarray:
        return np.full(steps.shape, rate)

    return Schedule(rates, rates, (), _FLOAT64)


def of_schedule(schedule: schedules.LearningRateSchedule) -> Schedule:
    """The rates of a schedule of Keras's, or of a user's own, whose breaks are not known."""
    as_keras = _evaluated(schedule)
    if type(schedule).__module__.split(".")[0] != "keras":
        return Schedule(as_keras, as_keras, (), _FLOAT32)
    # Keras computes in the dtype of these numbers.
    smooth = copy.copy(schedule)
    if isinstance(schedule, schedules.PiecewiseConstantDecay):
        smooth.values = [np.float64(value) for value in schedule.values]
    else:
        smooth.initial_learning_rate = np.float64(schedule.initial_learning_rate)
    of_ranges = _evaluated(smooth)
    breaks = _as_rates_jump(list(_first_breaks(schedule)), as_keras, of_ranges)
    return Schedule(as_keras, of_ranges, breaks, _FLOAT64)


def highest_rate(schedule: schedules.LearningRateSchedule) -> float:
    """The highest learning rate of a schedule, at its breaks and at powers of two."""
    found = of_schedule(schedule)
    places = [0, *(1 << power for power in range(int(END).bit_length() - 1)), *found.breaks]
    return float(np.max(found.as_keras(np.array(places, np.int64))))


def _as_rates_jump(breaks: list[int], *all_rates: Rates) -> Sequence[int]:
    # A graph multiplies by 1 / decay_steps, whose float may be too small: the update at which 41
    # steps are over has the rate of the one before it, and the next one jumps.
    places = np.array(breaks, np.int64)
    late = []
    for rates in all_rates:
        before, at, after = (rates(places + offset) for offset in (-1, 0, 1))
        late.append(abs(at - before) < abs(after - at))
    kept, added = places[~np.all(late, 0)], places[np.any(late, 0)] + 1
    return tuple(np.union1d(kept, added).tolist())


def _first_breaks(schedule: schedules.LearningRateSchedule) -> Iterator[int]:
    for place in itertools.islice(_breaks(schedule), _MOST_BREAKS):
        if place >= END:
            return
        yield int(place)


def _breaks(schedule: schedules.LearningRateSchedule) -> Iterator[float]:
    config = schedule.get_config()
    if isinstance(schedule, schedules.PiecewiseConstantDecay):
        yield from (np.floor(boundary) + 1 for boundary in config["boundaries"])
    elif isinstance(schedule, schedules.CosineDecay):
        warmup = config["warmup_steps"] if config["warmup_target"] is not None else 0
        yield from (np.ceil(warmup), np.ceil(warmup + config["decay_steps"]))
    elif isinstance(schedule, schedules.CosineDecayRestarts):
        place, length = 0.0, config["first_decay_steps"]
        while config["t_mul"] >= 1.0:
            place, length = place + length, length * config["t_mul"]
            # Keras's float32 has those of cycles that grow some updates early or late.
            width = 0 if config["t_mul"] == 1.0 else 2 + place // 500_000
            yield from np.ceil(place) + np.arange(-width, width + 1)
    elif isinstance(schedule, schedules.PolynomialDecay) and not config["cycle"]:
        yield np.ceil(config["decay_steps"])
    elif isinstance(schedule, schedules.PolynomialDecay):
        # A cycle has the update at its end, mostly: a later jump is found.
        yield from (np.floor(k * config["decay_steps"]) for k in itertools.count(1))
    elif config.get("staircase") and config.get("decay_steps"):
        yield from (np.ceil(k * config["decay_steps"]) for k in itertools.count(1))


def _evaluated(schedule: schedules.LearningRateSchedule) -> Rates:
    # A schedule is made for one step, and may branch on it.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
    def evaluate(steps: tf.Tensor) -> tf.Tensor:
        return tf.vectorized_map(lambda step: tf.cast(schedule(step), tf.float64), steps)

    def rates(steps: np.ndarray) -> np.ndarray:
        if not steps.size:
            return np.zeros(steps.shape)
        with tf.init_scope(), tf.device("/CPU:0"):  # also while a graph is traced
            flat = evaluate(tf.constant(steps.reshape(-1), tf.int64))
        return np.asarray(flat.numpy().reshape(steps.shape))

    return rates


class StepSums(abc.ABC):
    """Sums over the updates from one up to before another.

    Numbers of updates are whole, float64, of any shape; so are the sums.
    """

    weight_decay: float
    may_flip = True  # whether an update may take more of a parameter than there is

    @abc.abstractmethod
    def until(self, steps: tf.Tensor, function: int) -> tf.Tensor:
        """The sum of a function over all updates before those of some numbers."""

    has_outlooks = False

    def outlook(self, steps: tf.Tensor) -> tf.Tensor:
        """That of `Outlooks`, where `has_outlooks`."""
        raise NotImplementedError(type(self).__name__)

    def between(self, first: tf.Tensor, end: tf.Tensor, function: int = RATE) -> tf.Tensor:
        return self.until(end, function) - self.until(first, function)

    def kept(self, first: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """What a range of updates keeps of a parameter, by weight decay."""
        if not self.weight_decay:
            return tf.ones([], tf.float64)
        size = tf.exp(self.between(first, end, LOG_KEPT))
        if not self.may_flip:
            return size
        return tf.where(self.is_flipped(first, end), -size, size)

    def is_flipped(self, first: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """Whether a parameter has another sign after a range of updates."""
        return tf.not_equal(tf.math.floormod(tf.round(self.between(first, end, FLIPS)), 2.0), 0.0)


@dataclasses.dataclass(frozen=True)
class ConstantSums(StepSums):
    """Those of a learning rate that never changes."""

    rate: float
    weight_decay: float

    @property
    def kept_by_each(self) -> tf.Tensor:
        return tf.constant(1.0 - self.weight_decay * self.rate, tf.float64)

    def until(self, steps: tf.Tensor, function: int) -> tf.Tensor:
        return steps * float(functions(np.array(self.rate), self.weight_decay)[function])


class ChangedSums(StepSums):
    """The sums of learning rates that a run's chief has changed.

    `numbers` are those of the first updates with each rate, `[n]` int64, in order; the first rate
    is that of all updates before it, too. With weight decay and a series that has a factor, Adam's
    bias correction is taken as equal in all updates in which most of the series is added.
    """

    def __init__(
        self,
        numbers: tf.Tensor,
        rates: tf.Tensor,
        weight_decay: float,
        series: Series | None = None,
    ):
        self.weight_decay = weight_decay
        self.has_outlooks = series is not None
        self._series = series
        # There may be more numbers than changes: those lie behind all updates.
        self._numbers = tf.minimum(tf.cast(numbers, tf.float64), float(END))
        self._rates = tf.cast(rates, tf.float64)
        self._kept = 1.0 - weight_decay * self._rates
        log_kept = tf.maximum(tf.math.log(tf.abs(self._kept)), _LEAST_LOG)
        self._functions = tf.stack(
            [
                self._rates,
                self._rates * self._rates,
                log_kept,
                tf.cast(self._kept < 0.0, tf.float64),
            ],
            1,
        )
        lengths = (self._numbers[1:] - self._numbers[:-1])[:, tf.newaxis]
        added = tf.cumsum(lengths * self._functions[:-1])
        self._sums = tf.concat([tf.zeros([1, 4], tf.float64), added], 0)

    def until(self, steps: tf.Tensor, function: int) -> tf.Tensor:
        place = _place(self._numbers, steps)
        beyond = steps - tf.gather(self._numbers, place)
        each = tf.gather(self._functions[:, function], place)
        return tf.gather(self._sums[:, function], place) + beyond * each

    def outlook(self, steps: tf.Tensor) -> tf.Tensor:
        end_of, apart = self._of_ends
        place = _place(self._numbers, steps)
        end = tf.gather(end_of, place)
        grown = self._grown(steps, end, place)
        return self._of_rate(steps, place) + tf.gather(apart, place) * grown

    def keeps_more_than(self, ratio: float) -> tf.Tensor:
        """Whether an update of each rate keeps more of a parameter than a ratio, scalar bool."""
        return tf.reduce_all(self._kept > ratio + _LEAST_APART)

    @functools.cached_property
    def _of_ends(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Where each rate ends, and how far the outlook is apart there from the rate's, `[n]`."""
        count = self._numbers.shape[0]
        ends = tf.concat([self._numbers[1:], [float(END)]], 0)
        places = tf.range(count)
        of_rate = self._of_rate(tf.concat([self._numbers, ends], 0), tf.concat([places, places], 0))
        at_start, at_end = of_rate[:count], of_rate[count:]
        each = self._grown(self._numbers, ends, places)
        added = at_start - each * at_end
        # Of each rate with the one after it, then with the three after it, and so on.
        shift = 1
        while shift < count:
            padded = tf.zeros([shift], tf.float64)
            added += each * tf.concat([added[shift:], padded], 0)
            each *= tf.concat([each[shift:], padded], 0)
            shift *= 2
        return ends, tf.concat([added[1:], tf.zeros([1], tf.float64)], 0) - at_end

    def _of_rate(self, steps: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """The outlook as if a rate lasted for ever."""
        assert self._series
        ratio, kept = self._series.ratio, tf.gather(self._kept, place)
        above = kept - ratio
        above = tf.where(tf.abs(above) < _LEAST_APART, _LEAST_APART * tf.ones_like(above), above)
        if not self._series.betas:
            return ratio / above * tf.ones_like(steps)
        unit = sums_of_rate_one(self._series).outlook(steps)
        return tf.gather(self._rates, place) * unit * (1.0 - ratio) / above

    def _grown(self, steps: tf.Tensor, end: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
        """`ratio^n / kept^n` over n updates up to a rate's end; 0 for the last, which has none."""
        assert self._series
        log_kept = tf.gather(self._functions[:, LOG_KEPT], place)
        grown = tf.exp(
            tf.minimum((end - steps) * (math.log(self._series.ratio) - log_kept), _MOST_LOG)
        )
        return tf.where(end < END, grown, tf.zeros_like(grown))


class ScheduledSums(StepSums):
    """Those of a schedule, from a table that is made once."""

    def __init__(self, schedule: Schedule, weight_decay: float, series: Series | None = None):
        self.weight_decay = weight_decay
        as_keras, smooth = (
            _functions_of(rates, weight_decay, series)
            for rates in (schedule.as_keras, schedule.smooth)
        )
        log_kept = LOG_KEPT if weight_decay else None
        splits = outlook.cuts(series.ratio, log_kept) if series else _none
        cut = functools.partial(
            outlook.cut, smooth, as_keras, schedule.breaks, schedule.noise, splits
        )
        blocks = cut()
        decline = _decline(blocks, series)
        if (growth := outlook.growth(decline)) and outlook.exist(decline):
            blocks = cut(growth)
            decline = _decline(blocks, series)
        self._starts, self._lengths = blocks.starts.astype(float), blocks.lengths.astype(float)
        self._sums = [outlook.sums(blocks, each) for each in (RATE, SQUARE, LOG_KEPT, FLIPS)]
        added = [each.sum(1) for each in self._sums]
        for polynomials, each in zip(self._sums, added, strict=True):
            polynomials[1:, 0] = np.cumsum(each)[:-1]
        self._ratio, self._outlooks = 0.0, None
        self.may_flip = bool(blocks.values[:, :, FLIPS].any())
        if series and outlook.exist(decline):
            self._ratio = series.ratio
            signs = 1.0 - 2.0 * blocks.values[:, :, FLIPS]
            kept = signs * np.exp(blocks.values[:, :, LOG_KEPT])
            self._outlooks = Outlooks(blocks, series.ratio, blocks.values[:, :, 4], kept, decline)

    @functools.cached_property
    def _first_outlooks(self) -> np.ndarray | None:
        """The outlook of each update up to where it changes no more, if that is not far."""
        # An operation looks one up. A polynomial takes forty, as long as all else that is made of
        # a batch's missed updates.
        assert self._outlooks
        count = self._outlooks.changes_until(self._starts)
        if count > MOST_LOOKED_UP:
            return None
        with tf.init_scope(), tf.device("/CPU:0"):  # also while a graph is traced
            return np.asarray(self._computed_outlook(tf.range(count + 1.0, dtype=tf.float64)))

    def until(self, steps: tf.Tensor, function: int) -> tf.Tensor:
        return _polynomial(self._sums[function], *self._within(steps)[:2])

    @property
    def has_outlooks(self) -> bool:  # type: ignore[override]
        return self._outlooks is not None

    def outlook(self, steps: tf.Tensor) -> tf.Tensor:
        table = self._first_outlooks
        return self._computed_outlook(steps) if table is None else looked_up(table, steps)

    def _computed_outlook(self, steps: tf.Tensor) -> tf.Tensor:
        assert self._outlooks
        place, x, length = self._within(steps)
        since = (x if self._outlooks.is_forward else x - 1.0) * length
        log_left = -since * math.log(self._ratio)
        if self.weight_decay:
            log_left += self._since(LOG_KEPT, place, x)
        apart = tf.gather(tf.constant(self._outlooks.apart), place)
        apart *= tf.exp(tf.minimum(log_left, _MOST_LOG))
        if self.may_flip:
            flips = tf.round(self._since(FLIPS, place, x))
            apart *= 1.0 - 2.0 * tf.math.floormod(flips, 2.0)
        return _polynomial(self._outlooks.polynomials, place, x) + apart

    def _since(self, function: int, place: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """The sum of a function since outlooks meet, below 0 where they meet later."""
        assert self._outlooks
        sums = self._sums[function]
        met = sums[:, 0] if self._outlooks.is_forward else sums.sum(1)
        return _polynomial(sums, place, x) - tf.gather(tf.constant(met), place)

    def _within(self, steps: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The range that each update is in, its place in it from 0 to 1, and the range's length."""
        place = _place(tf.constant(self._starts), steps)
        length = tf.gather(tf.constant(self._lengths), place)
        return place, (steps - tf.gather(tf.constant(self._starts), place)) / length, length


def looked_up(table: np.ndarray, numbers: tf.Tensor) -> tf.Tensor:
    """The values of a function of whole numbers, given for the first ones; the last for all others.

    Numbers are float64, of any shape.
    """
    return tf.gather(tf.constant(table), tf.cast(tf.minimum(numbers, len(table) - 1.0), tf.int32))


@functools.lru_cache(maxsize=32)
def sums_of_rate_one(series: Series) -> ScheduledSums:
    """Those of a learning rate that is 1, without weight decay."""
    return ScheduledSums(of_constant(1.0), 0.0, series)


def functions(rates: np.ndarray, weight_decay: float) -> np.ndarray:
    """The terms of the sums, by learning rates: `[..., 4]`."""
    decay = weight_decay * rates
    kept = np.maximum(np.abs(1.0 - decay), math.exp(_LEAST_LOG))
    log_kept = np.where(decay < 0.5, np.log1p(-np.minimum(decay, 0.5)), np.log(kept))
    return np.stack([rates, rates * rates, log_kept, (decay > 1.0).astype(float)], -1)


def _functions_of(rates: Rates, weight_decay: float, series: Series | None) -> outlook.Functions:
    def values(steps: np.ndarray) -> np.ndarray:
        of_steps = rates(steps)
        found = functions(of_steps, weight_decay)
        if not series:
            return found
        factor = series.factor(steps, of_steps)
        return np.concatenate([found, factor[..., np.newaxis]], -1)

    return values


def _decline(blocks: outlook.Blocks, series: Series | None) -> np.ndarray:
    """The logarithm of the size of `kept / ratio`, summed over each range, `[k]`."""
    if not series:
        return np.zeros(len(blocks.lengths))
    log_kept = outlook.sums(blocks, LOG_KEPT).sum(1)
    return np.asarray(log_kept - blocks.lengths * math.log(series.ratio))


def _none(lengths: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.zeros(len(lengths), bool)


def _place(starts: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
    """The last of some starts that is not above each number; the first for numbers below all."""
    flat = tf.searchsorted(starts, tf.reshape(steps, [-1]), side="right") - 1
    return tf.reshape(tf.maximum(flat, 0), tf.shape(steps))


def _polynomial(coefficients: np.ndarray, place: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    # Of one operation each: a graph has several of them for each table.
    *lower, value = tf.unstack(tf.gather(tf.constant(coefficients), place), axis=-1)
    for coefficient in reversed(lower):
        value = value * x + coefficient
    return value
