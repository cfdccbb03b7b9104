"""Rows that miss up to a million updates, of drawn optimizers and schedules, beside dense Keras.

TFPS_FUZZ_SECONDS has cases drawn for so long, and says how many there were.
"""

import collections
import os
import pathlib
import time

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.optimizers import dense_reference, missed_cases
from tests.optimizers.missed_cases import SCHEDULES, Case, cases

SCHEDULE = keras.optimizers.schedules
SECONDS = float(os.environ.get("TFPS_FUZZ_SECONDS", "0"))


def settings(examples, **more):
    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        **more,
    )


def check(case):
    if case.is_refused():
        return
    error = case.error()
    assert error <= case.bound(), f"{error:.1e} of its way: {case}"


@settings(25, phases=[hypothesis.Phase.generate])
@hypothesis.given(cases(most=20_000))
def test_rows_end_where_dense_keras_moves_them(case):
    check(case)


@pytest.mark.slow
@settings(300)
@hypothesis.given(cases())
def test_rows_that_miss_up_to_a_million_updates_end_where_dense_keras_moves_them(case):
    check(case)


def decay(schedule, **options):
    """An Adam with weight decay whose series falls as slowly as the decay takes of the row."""
    return keras.optimizers.Adam(schedule, beta_1=0.9999, beta_2=0.9999, **options)


FOUND = [  # by drawing
    Case(
        "Adam",
        "PolynomialDecay",
        decay(
            SCHEDULE.PolynomialDecay(2.46e-5, 8, 0.0, 0.5),
            weight_decay=0.12642276422764226,
            epsilon=1e-3,
        ),
        (),
        2,
        60400,
        (29788, 30612),
        18,
    ),
    *(
        Case(
            "Adam",
            "CosineDecay",
            decay(SCHEDULE.CosineDecay(rate, 1730, 0.5), weight_decay=weight_decay, epsilon=1e-8),
            (),
            273999,
            340000,
            (393, 339607),
            46,
        )
        for rate, weight_decay in [(0.407, 1.8230958e-4), (0.0392, 1.892857e-3)]
    ),
    Case(
        "Adam amsgrad",
        "ExponentialDecay",
        keras.optimizers.Adam(
            SCHEDULE.ExponentialDecay(0.00264, 40, 0.999),
            beta_1=0.99134,
            beta_2=0.99635,
            amsgrad=True,
        ),
        (),
        177999,
        60400,
        (59, 60341),
        51,
    ),
    Case(
        "SGD",
        "PolynomialDecay cycle",
        keras.optimizers.SGD(
            SCHEDULE.PolynomialDecay(0.583, 15, 0.00583, 0.5, cycle=True), weight_decay=0.0727
        ),
        (),
        92,
        523,
        (0, 523),
        29,
    ),
    # Decay is faster than momentum falls, and then is not any more.
    Case(
        "SGD momentum",
        "InverseTimeDecay",
        keras.optimizers.SGD(
            SCHEDULE.InverseTimeDecay(0.00379, 2110, 0.96),
            momentum=0.9999,
            weight_decay=0.467018,
            clipnorm=0.5,
        ),
        (),
        2,
        1240,
        (195, 1045),
        33,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", FOUND, ids=lambda case: f"{case.kind} {case.schedule}")
def test_rows_end_where_dense_keras_moves_them_also_where_they_once_did_not(case):
    check(case)


def test_the_bounds_are_those_that_are_documented():
    page = pathlib.Path(__file__).parents[2] / "docs" / "own_model.md"
    lines = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    documented = {name: tuple(rest) for name, *rest in cells}
    bounds = {
        "SGD and RMSprop with momentum": (missed_cases.EXACT, missed_cases.EXACT),
        "Adam, other betas": (missed_cases.ADAM_OTHER_BETAS,) * 2,
        "Adam, `beta_1` up to 0.9 and `beta_2` of 0.99 and more": (missed_cases.ADAM,) * 2,
        "Ftrl with l2 shrinkage": (missed_cases.EXACT, missed_cases.FTRL_SHRINKAGE),
    }
    for name, expected in bounds.items():
        assert tuple(float(cell) for cell in documented[name]) == expected


@settings(15, phases=[hypothesis.Phase.generate])
@hypothesis.given(cases(schedule_kinds=[each for each in SCHEDULES if each != "changed"], most=12))
def test_the_reference_is_what_keras_makes_of_rows_in_float64(case):
    row, slots = case.state()
    theirs = keras.Variable(row[np.newaxis], dtype="float64")
    case.optimizer.build([theirs])
    held = [each for each in case.optimizer.variables if each.shape[:1] == (1,)]
    for variable, slot in zip(held, slots, strict=True):
        variable.assign(slot[np.newaxis])
    case.optimizer.iterations.assign(case.first)

    # As in a fit: without a graph, a stair may begin at another update.
    @tf.function(autograph=False)
    def miss():
        case.optimizer.apply([tf.zeros([1, len(row)], tf.float64)], [theirs])

    for _ in range(case.count):
        miss()
    slots = [slot.astype(float) for slot in slots]
    ours, _ = dense_reference.missed(
        case.optimizer, row.astype(float), slots, case.first, case.rates()
    )
    np.testing.assert_allclose(ours, theirs.numpy()[0], rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(not SECONDS, reason="draws cases for TFPS_FUZZ_SECONDS")
@pytest.mark.timeout(2 * SECONDS + 300)
def test_drawn_cases_have_no_finding(capsys):
    ends, count, found = time.monotonic() + SECONDS, collections.Counter(), []

    @hypothesis.seed(time.time_ns())
    @hypothesis.settings(settings(10**9, phases=[hypothesis.Phase.generate]), derandomize=False)
    @hypothesis.given(cases())
    def draw(case):
        if time.monotonic() > ends:
            raise KeyboardInterrupt
        if case.is_refused():
            return
        count[case.kind, case.schedule] += 1
        if not (error := case.error()) <= case.bound():  # NaN is a finding, too
            found.append(f"{error:.1e} of its way: {case}")

    with pytest.raises(KeyboardInterrupt):
        draw()
    with capsys.disabled():
        print(f"\n{count.total()} cases, of {len(count)} kinds, {len(found)} findings")
    assert not found, "\n".join(found)
