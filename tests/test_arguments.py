"""An argument of a public name has one meaning, or is refused in one sentence.

`TFPS_ARGUMENTS_SECONDS=600 pytest -s tests/test_arguments.py` draws cases for 600 s, several wrong
values at once among them, and makes a run's inputs of every experiment that is taken.
"""

import contextlib
import dataclasses
import datetime
import decimal
import inspect
import itertools
import math
import os
import pathlib
import random
import signal
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfps
from tests.training_fixtures import inputs_of
from tfps.errors import RunError, UserError
from tfps.experiment.mode import MODES
from tfps.model.inputs import signature_specs

LIMIT_SECONDS = 10
LONGEST_MESSAGE = 1500
USER = tfps.Feature("user", "int64", vocabulary=50)
NUMBERS = tfps.Feature("x", "float32", (4,))
LABEL = tfps.Feature("y", "float32")
SECONDS = float(os.environ.get("TFPS_ARGUMENTS_SECONDS", "0"))


class Unshowable:
    def __repr__(self):
        raise RuntimeError("no")


WRONG = [
    *(
        lambda value=value: value
        for value in (None, True, 0, -1, 1.5, math.nan, math.inf, -math.inf)
    ),
    *(lambda value=value: value for value in (10**30, 1 << 62, 1e308, 3 + 2j, 10**5000, ...)),
    *(
        lambda value=value: value
        for value in ("", "x", "64", "a/b", "../x", "\0", "\ud800", "é\n" * 99)
    ),
    *(lambda value=value: value for value in (b"x", (1, 2), (), range(3), int, print, keras.Model)),
    list,
    dict,
    object,
    Unshowable,
    lambda: [None],
    lambda: ["x", 3],
    lambda: {"x": 1},
    lambda: {1: 2.0},
    lambda: {1, 2},
    lambda: lambda: None,
    lambda: iter([1]),
    lambda: np.array([1.5, 2]),
    lambda: np.zeros((2, 2)),
    lambda: np.float32(3),
    lambda: np.array("x"),
    lambda: tf.constant(3),
    lambda: tf.constant(["x"]),
    lambda: keras.Input((3,)),
    lambda: keras.optimizers.SGD(),
    lambda: keras.losses.MeanSquaredError(),
    lambda: decimal.Decimal(3),
    lambda: datetime.datetime(2026, 1, 1),
    lambda: pathlib.Path("p"),
    lambda: LABEL,
    lambda: ValueError("x"),
]


def build():
    user, x = keras.Input((), name="user", dtype="int64"), keras.Input((4,), name="x")
    row = keras.layers.Embedding(50, 2)(user)
    model = keras.Model([user, x], keras.layers.Dense(1)(keras.layers.Concatenate()([row, x])))
    model.compile("adagrad", "mse")
    return model


class Own(tfps.Task):
    """A task of which one method returns something else."""

    def features(self):
        return (USER, NUMBERS)

    def label(self):
        return LABEL

    def build_model(self):
        return build()

    def optimizer(self):
        return keras.optimizers.Adagrad()


def task_with(**returned):
    """A task whose methods return these."""
    methods = {name: (lambda self, *_, value=value: value) for name, value in returned.items()}
    task = type("Wrong", (Own,), methods)()
    for name in returned:
        getattr(task, name)(*([None] if name == "table_optimizer" else []))
    return task


def table(dim=4):
    return {"output_dim": dim}


def metric(kind):
    return lambda **given: kind(**given)([0, 1, 1], [0.1, 0.2, 0.3], [1, 1, 2])


def arguments_of(function):
    named = inspect.signature(function).parameters.values()
    return [each.name for each in named if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]


def experiment(**given):
    return tfps.Experiment(
        **{"name": "t", "task": tfps.task_of(build, LABEL, (USER, NUMBERS)), **given}
    )


def of_task(make):
    return lambda **given: experiment(task=make(**given))


# What is called, and the arguments that it takes; those that it needs have good values.
CALLED = {
    "Feature": (tfps.Feature, {"name": "user", "dtype": "int64"}),
    "Field": (tfps.Field, {"columns": ("a",), "convert": int}),
    "RowFormat": (
        tfps.RowFormat,
        {"columns": ("a",), "delimiter": ",", "fields": {"a": tfps.Field(("a",), int)}},
    ),
    "Data": (lambda **given: experiment(data=tfps.Data(**given)), {}, tfps.Data),
    "Train": (lambda **given: experiment(train=tfps.Train(**given)), {}, tfps.Train),
    **{
        kind.__name__: (lambda kind=kind, **given: experiment(mode=kind(**given)), {}, kind)
        for kind in MODES.values()
        if dataclasses.fields(kind)
    },
    "Experiment": (experiment, {}, tfps.Experiment),
    "task_of": (
        of_task(tfps.task_of),
        {"model": build, "label": LABEL, "features": (USER, NUMBERS)},
        tfps.task_of,
    ),
    "Task": (
        of_task(task_with),
        {},
        [
            "features",
            "label",
            "weight",
            "group",
            "build_model",
            "loss",
            "optimizer",
            "table_optimizer",
            "metrics",
            "rows",
            "predictions",
            "sample_weight",
        ],
    ),
    "write_dataset": (
        tfps.write_dataset,
        {"directory": "data", "x": {"x": np.zeros(3)}, "overwrite": True},
        [
            each
            for each in arguments_of(tfps.write_dataset)
            if each not in ("x", "y", "sample_weight")
        ],
    ),
    # Others go on to these two, and to `Train`.
    "fit": (
        lambda **given: tfps.fit(build(), **given),
        {"x": {"user": np.arange(8), "x": np.zeros((8, 4), "f4")}, "y": np.ones(8), "job_dir": "j"},
        ["callbacks", "validation_split", "class_weight"],
    ),
    "load_model": (tfps.load_model, {}),
    "ExportedModel.load": (tfps.ExportedModel.load, {}),
    "Embedding": (tfps.Embedding, {"input_dim": 9, "output_dim": 4}),
    "DynamicEmbedding": (tfps.DynamicEmbedding, {"output_dim": 4, "max_rows": 9}),
    "RowsOfFiles": (tfps.RowsOfFiles, {"path": "p"}),
    "RowsOfIds": (tfps.RowsOfIds, {}),
    "RowWiseAdagrad": (tfps.RowWiseAdagrad, {}),
    "in_batch_softmax": (
        tfps.in_batch_softmax,
        {
            "users": np.ones((2, 3)),
            "items": np.ones((2, 3)),
            "item_ids": np.array([1, 2]),
            "log_q": np.zeros(2),
        },
    ),
    **{
        kind.__name__: (metric(kind), {}, ["k"])
        for kind in (tfps.HitRate, tfps.RecallAtK, tfps.NDCG)
    },
}
WITHOUT_ARGUMENTS = {
    "AllReduce", "Calibration", "GroupAUC", "GroupedMetric", "Local", "LogLoss",
    "MeanReciprocalRank", "NormalizedEntropy", "SummedMetric", "ExportedModel",
}  # fmt: skip
CASES = [
    (name, argument)
    for name, (made, _, *of) in CALLED.items()
    for argument in (
        of[0] if of and isinstance(of[0], list) else arguments_of(of[0] if of else made)
    )
]


@contextlib.contextmanager
def limited():
    """Ends a wait."""

    def end(*_):
        raise AssertionError(f"it takes more than {LIMIT_SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(name, given, use):
    """`taken` or `refused`; anything else is an error that names the case."""
    made, good, *_ = CALLED[name]
    case = f"{name}({', '.join(f'{key}={shown(value)}' for key, value in given.items())})"
    try:
        with limited():
            use(made(**{**good, **given}))
    except (UserError, RunError) as refusal:
        text = str(refusal)
        if "\n" in text.strip() or len(text) > LONGEST_MESSAGE:
            raise AssertionError(f"{case}: no sentence: {text}") from refusal
        return "refused"
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    return "taken"


def shown(value):
    try:
        return repr(value)[:80]
    except Exception:
        return type(value).__name__


def look_at(made):
    """What is done with it at once."""
    if isinstance(made, tfps.Feature):
        made.schema()
        signature_specs([made])
    if isinstance(made, tfps.Experiment):
        made.negatives()


@pytest.fixture(autouse=True)
def own_directory_fixture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_public_name_is_here():
    assert {name.partition(".")[0] for name in CALLED} | WITHOUT_ARGUMENTS == set(tfps.__all__)


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.slow) if x == "fit" else x for x in CALLED]
)
def test_a_wrong_argument_is_refused_in_a_sentence(name):
    outcomes = []
    for argument in [argument for of, argument in CASES if of == name]:
        outcomes += [outcome(name, {argument: make()}, look_at) for make in WRONG]
    assert "refused" in outcomes


@pytest.mark.skipif(not SECONDS, reason="TFPS_ARGUMENTS_SECONDS does not say for how long")
@pytest.mark.timeout(SECONDS + 300)
def test_drawn_arguments_are_refused_in_a_sentence(tmp_path):
    draw, ends = random.Random(time.time_ns()), time.monotonic() + SECONDS
    drawn = np.random.default_rng(0)
    x = {"user": drawn.integers(0, 50, 64), "x": drawn.standard_normal((64, 4)).astype("f4")}
    y = {"y": drawn.integers(0, 2, 64).astype("f4")}
    data = str(tmp_path / "records")
    tfps.write_dataset(data, x, y, features=(USER, NUMBERS), label=LABEL)

    def use(made):
        look_at(made)
        if isinstance(made, tfps.Experiment):
            named = made.data if made.data.train else dataclasses.replace(made.data, train=data)
            # No dataset comes here: a long follow_seconds would only wait.
            named = dataclasses.replace(named, follow_seconds=min(named.follow_seconds, 1.0))
            run = dataclasses.replace(made, data=named)
            inputs_of(run, tmp_path / "job")

    counts, wrong = {"taken": 0, "refused": 0}, {}
    by_name = {name: [each for of, each in CASES if of == name] for name in CALLED}
    while time.monotonic() < ends:
        name = draw.choice(list(CALLED))
        some = draw.sample(by_name[name], min(len(by_name[name]), draw.choice([1, 1, 2, 3])))
        try:
            counts[outcome(name, {each: draw.choice(WRONG)() for each in some}, use)] += 1
        except AssertionError as error:
            wrong.setdefault(str(error)[:400], None)
    print(f"\n{sum(counts.values()) + len(wrong)} cases: {counts}")
    assert not wrong, "\n".join(itertools.islice(wrong, 40))
