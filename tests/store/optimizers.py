"""Every supported optimizer and its options, and the lazy rule of each in NumPy."""

import keras
import numpy as np

OPTIMIZERS = {
    "sgd": (keras.optimizers.SGD, {"learning_rate": 0.1}),
    "momentum": (keras.optimizers.SGD, {"learning_rate": 0.05, "momentum": 0.9}),
    "nesterov": (keras.optimizers.SGD, {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True}),
    "adagrad": (keras.optimizers.Adagrad, {"learning_rate": 0.1}),
    "adagrad_zero_start": (
        keras.optimizers.Adagrad,
        {"learning_rate": 0.01, "initial_accumulator_value": 0.0},
    ),
    "adam": (keras.optimizers.Adam, {"learning_rate": 0.01}),
    "amsgrad": (keras.optimizers.Adam, {"learning_rate": 0.01, "amsgrad": True, "beta_2": 0.9}),
    "adamw": (keras.optimizers.AdamW, {"learning_rate": 0.01, "beta_1": 0.8, "epsilon": 1e-4}),
    "ftrl": (keras.optimizers.Ftrl, {"learning_rate": 0.1}),
    "ftrl_options": (
        keras.optimizers.Ftrl,
        {
            "learning_rate": 0.1,
            "initial_accumulator_value": 0.2,
            "l1_regularization_strength": 0.02,
            "l2_regularization_strength": 0.1,
            "l2_shrinkage_regularization_strength": 0.05,
            "beta": 0.3,
        },
    ),
    "ftrl_power": (keras.optimizers.Ftrl, {"learning_rate": 0.1, "learning_rate_power": -0.7}),
    "rmsprop": (keras.optimizers.RMSprop, {"learning_rate": 0.01}),
    "rmsprop_momentum": (
        keras.optimizers.RMSprop,
        {"learning_rate": 0.005, "momentum": 0.5, "rho": 0.8},
    ),
    "rmsprop_centered": (
        keras.optimizers.RMSprop,
        {"learning_rate": 0.005, "centered": True, "epsilon": 1e-3},
    ),
    "rmsprop_centered_momentum": (
        keras.optimizers.RMSprop,
        {"learning_rate": 0.005, "centered": True, "momentum": 0.5, "epsilon": 1e-3},
    ),
    "lion": (keras.optimizers.Lion, {"learning_rate": 0.01}),
}

DECAY_STEPS, DECAY_RATE = 10, 0.95
# What is combined with every optimizer: whether its rate decays, and options of them all.
# With `global_clipnorm` weight decay leaves out what `EXCLUDED` names.
EXCLUDED = ("bias", "second")
COMBINATIONS = {
    "alone": (False, {}),
    "clipnorm": (True, {"weight_decay": 0.1, "clipnorm": 1.0}),
    "global_clipnorm": (False, {"weight_decay": 0.1, "global_clipnorm": 1.5}),
    "clipvalue": (True, {"clipvalue": 0.3}),
}


def make(name, combination):
    """An optimizer with the options of a combination."""
    kind, options = OPTIMIZERS[name]
    scheduled, more = COMBINATIONS[combination]
    options = {**options, **more}
    if scheduled:
        options["learning_rate"] = keras.optimizers.schedules.ExponentialDecay(
            options["learning_rate"], DECAY_STEPS, DECAY_RATE
        )
    optimizer = kind(**options)
    if combination == "global_clipnorm":
        optimizer.exclude_from_weight_decay(var_names=list(EXCLUDED))
    return optimizer


def decays(name, combination, variable):
    """Whether weight decay applies to a variable of that name."""
    excluded = combination == "global_clipnorm" and variable in EXCLUDED
    return not excluded and bool(make(name, combination).weight_decay)


def rate_of(name, combination, step):
    """The learning rate of update number `step`, in float64."""
    scheduled, _ = COMBINATIONS[combination]
    return OPTIMIZERS[name][1]["learning_rate"] * (
        DECAY_RATE ** (step / DECAY_STEPS) if scheduled else 1
    )


def starts_of(optimizer):
    """What each slot of a row is filled with at first."""
    if isinstance(optimizer, keras.optimizers.SGD):
        return [0.0] if optimizer.momentum else []
    if isinstance(optimizer, keras.optimizers.Adagrad):
        return [optimizer.initial_accumulator_value]
    if isinstance(optimizer, keras.optimizers.Adam):
        return [0.0, 0.0, 0.0] if optimizer.amsgrad else [0.0, 0.0]
    if isinstance(optimizer, keras.optimizers.Ftrl):
        return [optimizer.initial_accumulator_value, 0.0]
    if isinstance(optimizer, keras.optimizers.RMSprop):
        return [0.0, 0.0, 0.0]
    return [0.0]


def step_rows(optimizer, rate, step, rows, slots, gradient):
    """The published formulas on the touched rows, in float64; changes `slots` in place.

    Args:
        optimizer: A Keras optimizer, for its options.
        rate: Learning rate.
        step: Number of updates before this one.
        rows: `[u, dim]`.
        slots: `[u, dim]` each, as in `starts_of`.
        gradient: `[u, dim]`, summed by row and clipped.

    Returns:
        The rows after.
    """
    o = optimizer
    if isinstance(o, keras.optimizers.SGD):
        if not slots:
            return rows - rate * gradient
        slots[0][:] = o.momentum * slots[0] - rate * gradient
        return rows + (o.momentum * slots[0] - rate * gradient if o.nesterov else slots[0])
    if isinstance(o, keras.optimizers.Adagrad):
        slots[0] += gradient**2
        return rows - rate * gradient / np.sqrt(slots[0] + o.epsilon)
    if isinstance(o, keras.optimizers.Adam):
        slots[0][:] = o.beta_1 * slots[0] + (1 - o.beta_1) * gradient
        slots[1][:] = o.beta_2 * slots[1] + (1 - o.beta_2) * gradient**2
        if o.amsgrad:
            slots[2][:] = np.maximum(slots[2], slots[1])
        corrected = rate * np.sqrt(1 - o.beta_2 ** (step + 1)) / (1 - o.beta_1 ** (step + 1))
        return rows - corrected * slots[0] / (np.sqrt(slots[-1]) + o.epsilon)
    if isinstance(o, keras.optimizers.Ftrl):
        before = slots[0] ** -o.learning_rate_power
        slots[0] += gradient**2
        after = slots[0] ** -o.learning_rate_power
        shrinkage = 2 * o.l2_shrinkage_regularization_strength * rows
        slots[1] += gradient + shrinkage - (after - before) / rate * rows
        l1, l2 = o.l1_regularization_strength, o.l2_regularization_strength
        sparse = np.sign(slots[1]) * np.maximum(np.abs(slots[1]) - l1, 0)
        return -sparse / ((o.beta + after) / rate + 2 * l2)
    if isinstance(o, keras.optimizers.RMSprop):
        slots[0][:] = o.rho * slots[0] + (1 - o.rho) * gradient**2
        slots[2][:] = o.rho * slots[2] + (1 - o.rho) * gradient
        variance = slots[0] - slots[2] ** 2 if o.centered else slots[0]
        slots[1][:] = o.momentum * slots[1] + rate * gradient / np.sqrt(variance + o.epsilon)
        return rows - slots[1]
    direction = np.sign(o.beta_1 * slots[0] + (1 - o.beta_1) * gradient)
    slots[0][:] = o.beta_2 * slots[0] + (1 - o.beta_2) * gradient
    return rows - rate * direction
