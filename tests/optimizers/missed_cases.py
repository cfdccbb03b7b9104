"""Optimizers, schedules and rows that missed updates, drawn at random."""

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

import tfps
from tests.optimizers import dense_reference
from tfps.optimizers.missed_updates import MissedUpdates
from tfps.optimizers.rules import rule_for
from tfps.store.run_state import LearningRates

DIM = 2
EXACT = 1e-5
ADAM, ADAM_OTHER_BETAS, FTRL_SHRINKAGE = 1e-2, 5e-3, 5e-2
STAIRS, CYCLES = 1000, 100
# Of learning rates that a callback sets: with more decay than momentum falls, and Adam's.
DECAY_FIRST, EARLY, CHANGED, CHANGED_DECAY = 1.0, 0.5, 5e-2, 2e-2
ROUNDING = 3e-7  # of a row's greatest value: a row is float32
OPTIMIZERS = (
    "SGD", "SGD momentum", "SGD nesterov", "Adagrad", "RowWiseAdagrad", "RMSprop",
    "RMSprop momentum", "Adam", "Adam amsgrad", "Lion", "Ftrl", "Ftrl shrinkage",
)  # fmt: skip
SCHEDULES = (
    "constant", "changed", "PiecewiseConstantDecay", "ExponentialDecay", "ExponentialDecay stairs",
    "InverseTimeDecay", "InverseTimeDecay stairs", "PolynomialDecay", "PolynomialDecay cycle",
    "CosineDecay", "CosineDecay warmup", "CosineDecayRestarts",
)  # fmt: skip


def logarithmic(low, high):
    """Numbers whose logarithms are as likely as each other, to three digits."""
    way = np.log10(high / low) / 64
    return st.integers(0, 64).map(lambda place: float(f"{low * 10 ** (way * place):.3g}"))


def numbers(low, high):
    return logarithmic(low, high).map(round)


betas = st.one_of(
    st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.999, 0.9999]),
    logarithmic(1e-4, 1.0).map(lambda left: 1.0 - left),
)


@st.composite
def piecewise(draw, rate, scale):
    count = draw(st.integers(1, 6))
    places = draw(st.lists(numbers(1, 10 * scale), min_size=count, max_size=count, unique=True))
    shares = draw(st.lists(logarithmic(0.01, 1.0), min_size=count, max_size=count))
    return sorted(places), [rate, *(rate * share for share in shares)]


@st.composite
def schedules(draw, kind, rate):
    """A schedule whose highest learning rate is `rate`."""
    made = keras.optimizers.schedules
    name, *options = kind.split()
    scale = draw(numbers(3, 1_000_000))
    low = draw(st.sampled_from([0.0, 0.01, 0.5]))
    match name:
        case "constant" | "changed":
            return rate
        case "PiecewiseConstantDecay":
            return made.PiecewiseConstantDecay(*draw(piecewise(rate, scale)))
        case "ExponentialDecay" | "InverseTimeDecay":
            speed = draw(st.sampled_from([0.3, 0.9, 0.96, 0.999]))
            return getattr(made, name)(rate, scale, speed, staircase=bool(options))
        case "PolynomialDecay":
            power = draw(st.sampled_from([0.5, 1.0, 2.0]))
            return made.PolynomialDecay(rate, scale, low * rate, power, cycle=bool(options))
        case "CosineDecay":
            warmup = {}
            if options:
                warmup = {"warmup_target": rate, "warmup_steps": draw(numbers(1, scale))}
            return made.CosineDecay(rate * (0.1 if options else 1.0), scale, low, **warmup)
    t_mul, m_mul = (draw(st.sampled_from(each)) for each in ([1.0, 1.5, 2.0], [1.0, 0.8]))
    return made.CosineDecayRestarts(rate, scale, t_mul, m_mul, low)


@st.composite
def optimizers(draw, kind, schedule_kind):
    name, *options = kind.split()
    rate = draw(logarithmic(1e-5, 1.0))
    given = {"learning_rate": draw(schedules(schedule_kind, rate))}
    if draw(st.booleans()):
        given["weight_decay"] = draw(logarithmic(1e-6, 2.0)) / rate
    clip = draw(st.sampled_from([None, "clipnorm", "global_clipnorm", "clipvalue"]))
    given |= {clip: 0.5} if clip else {}
    momentum = draw(betas)
    match name:
        case "SGD":
            given |= {"momentum": momentum if options else 0.0, "nesterov": "nesterov" in options}
        case "RMSprop":
            given |= {"momentum": momentum if options else 0.0, "centered": draw(st.booleans())}
            given["rho"] = draw(betas)
        case "Adam":
            given |= {"beta_1": momentum, "beta_2": draw(betas), "amsgrad": "amsgrad" in options}
            given["epsilon"] = draw(st.sampled_from([1e-8, 1e-7, 1e-5, 1e-3]))
        case "Lion":
            given |= {"beta_1": max(momentum, 0.1), "beta_2": draw(betas)}
        case "Ftrl":
            given |= {
                "l1_regularization_strength": draw(st.sampled_from([0.0, 0.01])),
                "l2_regularization_strength": draw(st.sampled_from([0.0, 0.1])),
                "beta": draw(st.sampled_from([0.0, 0.3])),
                "learning_rate_power": draw(st.sampled_from([-0.5, -0.7])),
            }
            if options:
                given["l2_shrinkage_regularization_strength"] = draw(logarithmic(1e-4, 1.0))
    module = tfps if name == "RowWiseAdagrad" else keras.optimizers
    return getattr(module, name)(**given)


@dataclasses.dataclass(frozen=True)
class Case:
    """A row that misses updates.

    Attributes:
        kind: Of `OPTIMIZERS`.
        schedule: Of `SCHEDULES`.
        optimizer: Keras's.
        changes: Learning rates that the chief sets, by the first update that has each.
        first: Number of the first update that it misses.
        count: How many it misses.
        parts: In which it catches up: before and after a restart, say.
        seed: Of the row and of its slots.
    """

    kind: str
    schedule: str
    optimizer: keras.optimizers.Optimizer
    changes: tuple[tuple[int, float], ...]
    first: int
    count: int
    parts: tuple[int, ...]
    seed: int

    def __repr__(self):
        config = {**self.optimizer.get_config(), "name": None}
        kept = {name: value for name, value in config.items() if value is not None}
        values = {**dataclasses.asdict(dataclasses.replace(self, optimizer=None)), **kept}
        return f"Case({values})"

    def is_refused(self):
        return bool(rule_for(self.optimizer).refusal(bool(self.optimizer.weight_decay)))

    def bound(self):
        """As what part of the way that a row moves it may be off, as docs/own_model.md has it."""
        config = self.optimizer.get_config()
        if self.first + self.count > self._known_updates():
            return math.inf
        if self.changes and (bound := self._bound_of_changed_rates(config)):
            return bound
        if self.kind == "Adam":
            is_usual = config["beta_1"] <= 0.9 and config["beta_2"] >= 0.99
            return ADAM if is_usual else ADAM_OTHER_BETAS
        if self.kind == "Ftrl shrinkage" and self.schedule != "constant":
            return FTRL_SHRINKAGE
        return EXACT

    def _bound_of_changed_rates(self, config):
        """Another bound than that of a schedule, of learning rates that a callback sets."""
        series, decay = self.rule().series, config["weight_decay"] or 0.0
        if series and decay * max(rate for _, rate in self.changes) >= 1.0 - series.ratio:
            return DECAY_FIRST
        if not self.kind.startswith("Adam"):
            return None
        if self.first < 10 / (1.0 - max(config["beta_1"], config["beta_2"])):
            return EARLY if decay else CHANGED
        return CHANGED_DECAY if decay else None

    def _known_updates(self):
        """For how many updates the table of a schedule has room."""
        schedule = self.optimizer.get_config()["learning_rate"]
        if isinstance(schedule, float):
            return math.inf
        config = schedule["config"]
        if "stairs" in self.schedule:
            return STAIRS * config["decay_steps"]
        if config.get("cycle"):
            return CYCLES * config["decay_steps"]
        if config.get("t_mul") == 1.0:
            return CYCLES * config["first_decay_steps"]
        return math.inf

    def state(self):
        """A row and its slots, as updates with gradients may have left them; of some seeds none."""
        drawn = np.random.default_rng(self.seed)
        row = drawn.normal(size=DIM, scale=0.1)
        size = 10.0 ** drawn.uniform(-6, 0, DIM)
        rule = rule_for(self.optimizer)
        slots = []
        for name, slot in rule.slots.items():
            value = drawn.normal(size=DIM) * size
            value = value[:1] if slot.is_per_row else value
            if slot.is_square:
                value = slot.start + value**2 * 10.0 ** drawn.uniform(-1, 2)
            slots.append(value)
            if name == "velocity_hat":
                slots[-1] = np.maximum(slots[-1], slots[-2])
            if name == "average_gradient":  # whose square is below the mean of squares
                slots[-1] = np.sign(value) * np.minimum(np.abs(value), 0.9 * np.sqrt(slots[0]))
            if self.seed % 4 == 0:
                slots[-1] = np.full_like(value, slot.start)
        return row.astype("f4"), [slot.astype("f4") for slot in slots]

    def rates(self):
        """The learning rates of the updates that are missed."""
        if not self.changes:
            rates = dense_reference.rates_of(self.optimizer, self.first, self.count)
            return np.where(rates < np.finfo("f4").tiny, 0.0, rates)  # as kernels flush them
        starts, rates = zip(*self.changes, strict=True)
        steps = np.arange(self.first, self.first + self.count)
        return np.float32(rates).astype(float)[np.searchsorted(starts, steps, side="right") - 1]

    def rule(self):
        rule = rule_for(self.optimizer)
        if not self.changes:
            return rule
        rates = LearningRates(["/device:CPU:0"], self.changes[0][1])
        rates.restore(self.changes)
        return rule.with_rates(rates.of_part(0))

    def caught_up(self):
        """The row as tfps makes it."""
        rule, (row, slots) = self.rule(), self.state()
        values, step = [tf.constant(each[np.newaxis]) for each in (row, *slots)], self.first
        for part in self.parts:
            step += part
            missed = MissedUpdates.of(tf.constant([part]), tf.constant(step, tf.int64))
            values = rule.catch_up(values[0], values[1:], missed, bool(self.optimizer.weight_decay))
        return values[0].numpy()[0]

    def error(self):
        """How far the row is off, as a part of the way that it moved; rounding is left out."""
        row, slots = self.state()
        row, slots = row.astype(float), [slot.astype(float) for slot in slots]
        rates = self.rates()
        theirs, way = dense_reference.missed(self.optimizer, row, slots, self.first, rates)
        with np.errstate(over="ignore"):
            is_lost = ~np.isfinite(theirs.astype("f4"))  # by Keras itself
        theirs, way = (np.where(is_lost, 0.0, each) for each in (theirs, way))
        off = np.where(is_lost, 0.0, np.abs(self.caught_up() - theirs))
        off -= ROUNDING * len(self.parts) * (np.abs(row) + np.abs(theirs) + way * 1e-2)
        if self.kind == "Lion":  # rounding may have its momentum end an update earlier or later
            off -= np.max(rates)
        return float(np.max(np.maximum(off, 0.0) / np.maximum(way, 1e-30)))


@st.composite
def cases(draw, kinds=OPTIMIZERS, schedule_kinds=SCHEDULES, most=1_000_000):
    kind, schedule = draw(st.sampled_from(kinds)), draw(st.sampled_from(schedule_kinds))
    # The reference of Ftrl goes from one update to the next.
    longest = most if kind != "Ftrl shrinkage" else min(most, 5_000)
    first, count = draw(numbers(1, most)) - 1, draw(numbers(1, longest))
    split = draw(st.integers(0, count))
    optimizer = draw(optimizers(kind, schedule))
    changes = ()
    if schedule == "changed":
        places, rates = draw(piecewise(optimizer.get_config()["learning_rate"], most // 10))
        changes = tuple(zip([0, *places], rates, strict=True))
    parts = draw(st.sampled_from([(count,), (split, count - split)]))
    return Case(kind, schedule, optimizer, changes, first, count, parts, draw(st.integers(0, 99)))
