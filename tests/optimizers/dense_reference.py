"""What dense Keras makes of a row in updates without a gradient, in float64 and NumPy."""

import math

import keras
import numpy as np
import tensorflow as tf

LEAST = float(np.finfo(np.float32).tiny)  # TensorFlow's kernels take less for 0
SCHEDULES = keras.optimizers.schedules


def rates_of(optimizer, first, count):
    """The learning rates of updates, float64: without float32's noise, but with Keras's jumps."""
    schedule = optimizer.get_config()["learning_rate"]
    if isinstance(schedule, float):
        return np.full([count], schedule)
    schedule = SCHEDULES.deserialize(schedule)
    steps = np.arange(first, first + count)
    formula = FORMULAS[type(schedule)]
    ours = formula(schedule, steps)

    # In a fit the graph does not know the steps; of known ones it divides beforehand, exactly.
    @tf.function(autograph=False)
    def rates(steps):
        return tf.vectorized_map(schedule, steps)

    theirs = rates(tf.constant(steps)).numpy().astype(float)
    differs = np.abs(theirs - ours) > 1e-4 * np.max(ours)
    config = schedule.get_config()
    if config.get("t_mul", 1.0) != 1.0 or config.get("cycle"):
        return np.where(differs, theirs, ours)
    # A jump that is one update late, or early: the rest of a difference is float32's noise.
    near = np.stack([formula(schedule, np.maximum(steps + shift, 0)) for shift in (-1, 0, 1)])
    nearest = np.take_along_axis(near, np.abs(near - theirs).argmin(0)[np.newaxis], 0)[0]
    return np.where(differs, nearest, ours)


def _exponential(s, steps):
    place = steps / s.decay_steps
    decay_rate = float(np.float32(s.decay_rate))  # as in Keras; powers of it are further apart
    return s.initial_learning_rate * decay_rate ** (np.floor(place) if s.staircase else place)


def _inverse_time(s, steps):
    place = steps / s.decay_steps
    return s.initial_learning_rate / (
        1 + s.decay_rate * (np.floor(place) if s.staircase else place)
    )


def _piecewise(s, steps):
    return np.array(s.values)[np.searchsorted(s.boundaries, steps, side="left")]


def _polynomial(s, steps):
    end = s.decay_steps * (np.maximum(np.ceil(steps / s.decay_steps), 1) if s.cycle else 1)
    left = 1 - np.minimum(steps, end) / end
    return (s.initial_learning_rate - s.end_learning_rate) * left**s.power + s.end_learning_rate


def _cosine(s, steps):
    warmup = s.warmup_steps if s.warmup_target is not None else 0
    top = s.initial_learning_rate if s.warmup_target is None else s.warmup_target
    place = np.clip(steps - warmup, 0, s.decay_steps) / s.decay_steps
    falling = top * ((1 - s.alpha) * 0.5 * (1 + np.cos(np.pi * place)) + s.alpha)
    rising = s.initial_learning_rate
    rising = rising + (top - rising) * steps / max(warmup, 1)
    return np.where(steps < warmup, rising, falling)


def _restarts(s, steps):
    config = s.get_config()
    t_mul, place = config["t_mul"], steps / s.first_decay_steps
    if t_mul == 1.0:
        number = np.floor(place)
        place = place - number
    else:
        number = np.floor(np.log(1 - place * (1 - t_mul)) / math.log(t_mul) + 1e-12)
        place = (place - (1 - t_mul**number) / (1 - t_mul)) / t_mul**number
    falling = 0.5 * config["m_mul"] ** number * (1 + np.cos(np.pi * place))
    return s.initial_learning_rate * ((1 - s.alpha) * falling + s.alpha)


FORMULAS = {
    SCHEDULES.ExponentialDecay: _exponential,
    SCHEDULES.InverseTimeDecay: _inverse_time,
    SCHEDULES.PiecewiseConstantDecay: _piecewise,
    SCHEDULES.PolynomialDecay: _polynomial,
    SCHEDULES.CosineDecay: _cosine,
    SCHEDULES.CosineDecayRestarts: _restarts,
}


@np.errstate(all="ignore")  # a learning rate of 0 makes NaN of Ftrl's rows, in Keras too
def missed(optimizer, row, slots, first, rates):
    """A row after updates without a gradient, and the way that it moved.

    Args:
        optimizer: Keras's.
        row: Before them, `[dim]`.
        slots: Each of the optimizer's, in its order, `[dim]`.
        first: Number of the first of them.
        rates: Their learning rates, `[n]` float64.

    Returns:
        The row, `[dim]`; and what decays and what is added, which may be more than their sum.
    """
    config = optimizer.get_config()
    kept = 1.0 - (config["weight_decay"] or 0.0) * rates
    if isinstance(optimizer, keras.optimizers.Ftrl):
        after = _ftrl(config, row, slots, kept, rates)
        return after, np.abs(after - row)
    after_each = np.cumprod(np.append(1.0, kept[:0:-1]))[::-1, np.newaxis]
    left = row * after_each[0] * kept[0]
    added = _added(optimizer, config, slots, first, rates)
    added = np.sum(added * after_each[: len(added)], 0)
    return left + added, np.abs(row - left) + np.abs(added)


def _added(optimizer, config, slots, first, rates):
    """What each update adds to a row, `[n, dim]`; without those of which nothing is left."""
    falls = -np.log(max(config.get("beta_1", config.get("momentum", 0.0)), 1e-9))
    if config.get("beta_2") and not config.get("amsgrad"):
        falls += 0.5 * np.log(config["beta_2"])
    if not isinstance(optimizer, keras.optimizers.Lion):
        rates = rates[: int(min(len(rates), np.ceil(100 / falls)))]
    place = np.arange(1, len(rates) + 1)[:, np.newaxis]
    rates, steps = rates[:, np.newaxis], first + place
    match optimizer:
        case keras.optimizers.SGD(momentum=momentum) if momentum:
            return slots[0] * momentum ** (place + bool(config["nesterov"]))
        case keras.optimizers.RMSprop(momentum=momentum) if momentum:
            return -slots[1] * momentum**place
        case keras.optimizers.Adam(beta_1=beta_1, beta_2=beta_2):
            left_1, left_2 = (-np.expm1(steps * np.log(max(b, 1e-300))) for b in (beta_1, beta_2))
            velocity = slots[2] if config["amsgrad"] else slots[1] * beta_2**place
            mean = slots[0] * beta_1**place
            rates = rates * np.sqrt(left_2) / left_1
            return -rates * mean / (np.sqrt(velocity) + config["epsilon"])
        case keras.optimizers.Lion(beta_1=beta_1, beta_2=beta_2):
            is_held = beta_1 * beta_2 ** (place - 1.0) * np.abs(slots[0]) >= LEAST
            return -rates * np.sign(slots[0]) * is_held
    return np.zeros([len(rates), 1])


def _ftrl(config, row, slots, kept, rates):
    l1, shrinkage = (
        config[f"l{name}_strength"] for name in ("1_regularization", "2_shrinkage_regularization")
    )
    l2 = config["l2_regularization_strength"] + config["beta"] / (2 * rates)
    root = slots[0] ** -config["learning_rate_power"]
    quadratic = root / rates[:, np.newaxis] + 2 * l2[:, np.newaxis]
    linear = slots[1]
    if not shrinkage:
        return (np.clip(linear, -l1, l1) - linear) / quadratic[-1]
    for number in range(len(rates)):
        linear = linear + 2 * shrinkage * kept[number] * row
        row = (np.clip(linear, -l1, l1) - linear) / quadratic[number]
    return row
