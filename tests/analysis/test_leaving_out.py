"""Explanations of a model whose workings are known."""

import numpy as np
import pytest

from tfps.analysis.leaving_out import explain, importance
from tfps.analysis.parts import parts_of
from tfps.data.feature import Feature
from tfps.experiment import metrics

PARTS = parts_of([Feature("x", "float32", (3,)), Feature("y", "float32")])
WEIGHTS = np.array([2.0, -1.0, 0.0])
RNG = np.random.default_rng(0)
OTHERS = {"x": RNG.normal(size=(200, 3)), "y": RNG.normal(size=200)}
RECORD = {"x": np.array([[1.0, 3.0, 5.0]]), "y": np.array([0.5])}


def linear(records):
    return records["x"] @ WEIGHTS + 10.0 * records["y"]


def test_the_effect_of_a_part_of_a_sum_is_what_it_adds_beyond_the_others_mean():
    found = explain(linear, RECORD, OTHERS, PARTS)
    assert found.prediction == linear(RECORD)[0]
    assert found.usual == pytest.approx(linear(OTHERS).mean())
    effects = {effect.part: effect for effect in found.effects}
    for k in range(3):
        adds = WEIGHTS[k] * (RECORD["x"][0, k] - OTHERS["x"][:, k])
        effect = effects[f"x[{k}]"]
        assert effect.change == pytest.approx(adds.mean())
        assert (effect.low, effect.high) == pytest.approx(tuple(np.percentile(adds, [10, 90])))
    sizes = [abs(effect.change) for effect in found.effects]
    assert sizes == sorted(sizes, reverse=True)
    assert effects["x[2]"].change == effects["x[2]"].high == 0.0


def test_a_single_record_is_explained_by_at_least_one_other():
    nobody = {name: values[:0] for name, values in OTHERS.items()}
    for record, others in ((OTHERS, OTHERS), (RECORD, nobody)):
        with pytest.raises(ValueError, match="records to explain by"):
            explain(linear, record, others, PARTS)


def test_a_model_must_give_one_number_for_each_record():
    with pytest.raises(ValueError, match="3 numbers are predicted of 1 records"):
        explain(lambda records: records["x"], RECORD, OTHERS, PARTS)


def test_what_a_model_does_not_use_is_of_no_importance():
    labels = linear(OTHERS) > 0
    found = importance(linear, OTHERS, lambda scores: metrics.auc(labels, scores), PARTS)
    assert found[0].part == "y"
    assert 0.3 < found[0].low <= found[0].drop <= found[0].high < 0.6
    assert next(each for each in found if each.part == "x[2]")[1:] == (0.0, 0.0, 0.0)
    again = importance(linear, OTHERS, lambda scores: metrics.auc(labels, scores), PARTS)
    assert again == found
    other = importance(linear, OTHERS, lambda scores: metrics.auc(labels, scores), PARTS, seed=1)
    assert other != found
