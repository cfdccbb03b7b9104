"""The learning rates of a schedule at many updates, and where they jump."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from keras.optimizers import schedules

END = 2**31  # no update has this number or a higher one
_MOST_BREAKS = 1024
_FLOAT64, _FLOAT32 = 1e-12, 3e-7

# The learning rates of updates, float64, by their numbers, int64 of the same shape.
Rates = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The learning rates of updates.

    Attributes:
        smooth: The same without the noise of float32, where that can be had.
    """

    as_keras: Rates
    smooth: Rates
    breaks: Sequence[int]
    noise: float


def of_constant(rate: float) -> Schedule:
    """The same rate for all updates."""

    def rates(steps: np.ndarray) -> np.ndarray:
        return np.full(steps.shape, rate)

    return Schedule(rates, rates, (), _FLOAT64)


def of_schedule(schedule: schedules.LearningRateSchedule) -> Schedule:
    """The rates of a schedule of Keras's, or of one's own, of which no breaks are known."""
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
