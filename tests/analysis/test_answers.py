"""What can be measured of a label and its predictions, and what is said where nothing can."""

import numpy as np
import pytest

from tfps.analysis.answers import Answers
from tfps.errors import UserError
from tfps.experiment import metrics

YES, CHANCES = np.array([[0], [1], [1]]), np.float32([0.1, 0.4, 0.9])


def test_yes_or_no_has_an_auc():
    answers = Answers.of({"clicked": YES}, {"predictions": CHANCES})
    assert (answers.label, answers.output) == ("clicked", "predictions")
    assert answers.why_not == answers.why_not_chances == ""
    assert answers.yes.tolist() == [False, True, True]
    assert answers.measure.name == "AUC"
    assert answers.measure.of(answers.predictions) == 1.0
    assert answers.measure.goodness(-CHANCES) == 0.0
    assert answers.take(np.array([0, 2])).yes.tolist() == [False, True]


@pytest.mark.parametrize(
    ("labels", "predictions", "sentence"),
    [
        ([0.5, 2.0, 7.5], CHANCES, "The label 'it' is not yes or no (1 or 0), "),
        ([0, 1, 1], np.zeros([3, 4]), "The label 'it' is predicted by 4 values for each record, "),
        ([1, 1, 1], CHANCES, "All labels 'it' are equal, "),
        ([b"a", b"b", b"c"], CHANCES, "The label 'it' is not yes or no (1 or 0), "),
    ],
)
def test_what_is_not_yes_or_no_is_said_in_a_sentence(labels, predictions, sentence):
    answers = Answers.of({"it": np.array(labels)}, {"predictions": np.float32(predictions)})
    assert answers.why_not == f"{sentence}so ROC, calibration and AUC do not apply to it."
    assert answers.why_not_chances == answers.why_not


def test_scores_of_any_size_have_an_auc_but_are_no_chances():
    answers = Answers.of({"it": YES}, {"predictions": 3 * CHANCES})
    assert answers.measure.of(answers.predictions) == 1.0
    assert answers.scores.tolist() == (3 * CHANCES).tolist()
    assert answers.why_not == ""
    assert answers.why_not_chances == (
        "The predictions of 'it' are no chances between 0 and 1, so calibration does not apply to "
        "them."
    )


def test_numbers_have_a_mean_error_and_classes_an_accuracy():
    numbers = Answers.of({"it": np.float32([[1], [2]])}, {"predictions": np.float32([1.5, 4])})
    assert numbers.are_numbers
    assert numbers.measure.of(numbers.predictions) == 1.25
    assert numbers.measure.goodness(numbers.predictions) == -1.25
    scores = np.float32([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])
    classes = Answers.of({"it": np.array([1, 2])}, {"predictions": scores})
    assert not classes.are_numbers
    assert classes.measure.name == "accuracy"
    assert classes.measure.of(scores) == metrics.class_accuracy([1, 2], scores) == 0.5
    assert classes.numbers({"predictions": scores}, 1).tolist() == scores[:, 1].tolist()


def test_nothing_is_measured_of_what_is_not_known():
    texts = Answers.of({"it": np.array([b"a", b"b"])}, {"predictions": np.float32([1, 2])})
    assert (texts.measure, texts.are_numbers) == (None, False)
    unknown = Answers.of({}, {"predictions": CHANCES})
    assert unknown.why_not.startswith("The data have no labels, ")
    assert (unknown.measure, unknown.are_numbers) == (None, False)
    assert unknown.take(np.array([1])).predictions.tolist() == [CHANCES[1]]


def test_of_several_labels_one_is_looked_at():
    labels = {"sold": YES, "clicked": 1 - YES}
    predictions = {"clicked": CHANCES, "sold": 1 - CHANCES}
    assert Answers.of(labels, predictions).label == "sold"
    answers = Answers.of(labels, predictions, "clicked")
    assert (answers.label, answers.output) == ("clicked", "clicked")
    assert answers.given(predictions) is predictions["clicked"]
    with pytest.raises(UserError, match=r"no label 'bought' .* labels are sold, clicked, .*pred"):
        Answers.of(labels, predictions, "bought")
    with pytest.raises(UserError, match="no label '' with a prediction"):
        Answers.of({"sold": YES}, {"a": CHANCES, "b": CHANCES})
