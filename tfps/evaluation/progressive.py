"""What the model predicted of records just before it learnt them: progressive validation.

McMahan et al., Ad Click Prediction: a View from the Trenches, KDD 2013, section 5. No record is
kept: of each label of 0 and 1 there are counts of records by their prediction.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tfps.experiment.task import Task
from tfps.model.inputs import SINGLE

BINS = 1024  # of logits, as wide as each other, from -LAST_LOGIT to LAST_LOGIT
LAST_LOGIT = 14.0
PROGRESSIVE = "progressive_"  # begins the names of such metrics next to those of evaluations
METRICS = ("log_loss", "auc", "calibration")
# Of a label: negatives and positives by bin; labels or predictions that are no yes or no; sums of
# the predictions and of their log losses.
WIDTH = 2 * BINS + 3
_SINGLE_VALUE = ((), (1,))


def judged_labels(
    task: Task, prediction_shapes: Mapping[str, Sequence[int | None]]
) -> dict[str, str]:
    """The labels of one value that have a prediction of one, with its name.

    Whether they are of yes or no shows in the records.
    """
    targets = task.targets()
    found = {}
    for label in targets:
        name = label.name if label.name in prediction_shapes else SINGLE
        is_known = name in prediction_shapes and (name != SINGLE or len(targets) == 1)
        is_number = label.shape in _SINGLE_VALUE and label.dtype != "string"
        if is_known and is_number and tuple(prediction_shapes[name]) in _SINGLE_VALUE:
            found[label.name] = name
    return found


@dataclasses.dataclass(frozen=True)
class Judged:
    """Counts of the records that were judged, `[labels, WIDTH]` float64."""

    labels: tuple[str, ...]
    counts: np.ndarray

    @classmethod
    def nothing(cls, labels: Sequence[str]) -> "Judged":
        return cls(tuple(labels), np.zeros([len(labels), WIDTH]))

    def plus(self, counts: np.ndarray) -> "Judged":
        """With more of them, in any shape."""
        return Judged(self.labels, self.counts + counts.reshape(self.counts.shape))

    def since(self, before: "Judged") -> "Judged":
        return Judged(self.labels, self.counts - before.counts)

    @staticmethod
    def names(labels: Collection[str]) -> list[str]:
        """What an export's conditions may compare where these labels are judged."""
        return [f"{PROGRESSIVE}{_prefix(x, labels)}{name}" for x in labels for name in METRICS]

    def metrics(self) -> dict[str, float]:
        """AUC, log loss and calibration, `LABEL_auc` of one of several labels.

        None of a label that has not been 0 or 1 in some record, and no AUC or calibration without
        a positive and a negative. Calibration is the mean prediction over the mean label.
        """
        found: dict[str, float] = {}
        for label, counts in zip(self.labels, self.counts, strict=True):
            before = _prefix(label, self.labels)
            found |= {f"{before}{name}": value for name, value in _metrics_of(counts).items()}
        return found


def _prefix(label: str, labels: Collection[str]) -> str:
    """What the names of a label's metrics begin with."""
    return f"{label}_" if len(labels) > 1 else ""


def _metrics_of(counts: np.ndarray) -> dict[str, float]:
    negatives, positives = counts[: 2 * BINS].reshape(2, BINS)
    unfit, predicted, log_loss = counts[2 * BINS :].tolist()
    total = float(negatives.sum() + positives.sum())
    if unfit or not total:
        return {}
    found = {"log_loss": log_loss / total}
    pairs = float(negatives.sum() * positives.sum())
    if pairs:
        # Of a bin's pairs one half counts as in order: they are of almost equal predictions.
        below = np.cumsum(negatives) - negatives / 2
        found["auc"] = float((positives * below).sum()) / pairs
        found["calibration"] = predicted / float(positives.sum())
    return found
