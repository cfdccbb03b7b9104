"""Holds an exported model against the parameters that it was made of, on some records."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tfps.errors import RunError
from tfps.export.row_encoding import RowEncoding
from tfps.model.stateless_model import StatelessModel

# Of what is compared with the largest prediction: in float32, two graphs of one model differ by a
# few units of its last place (6e-8), many layers add up to more.
_ROUNDING = 1e-4
# bfloat16 has 8 bits: values that are rounded to it are off by up to 1/512, and layers add up.
_COARSE_ROUNDING = 0.05
_SMALLEST = 1e-6  # where predictions are next to nothing
# Of predictions that are whole numbers, such as classes: rounding may decide between two.
_FLIPPED = 0.01

Predict = Callable[[Mapping[str, Any]], Mapping[str, np.ndarray]]
_log = logging.getLogger(__name__)


class Sample(NamedTuple):
    """Some records with what the parameters that were trained predict of them.

    Attributes:
        features: By name, `[records, *shape]`, ragged for shape `(None,)`.
        predictions: By name, `[records, ...]` float32.
        labels: What the task's `measured()` names, `[records, ...]` by name; none of records that
            are drawn.
    """

    features: Mapping[str, Any]
    predictions: Mapping[str, np.ndarray]
    rounding: float = _ROUNDING
    labels: Mapping[str, np.ndarray] = {}

    @classmethod
    def of(
        cls,
        model: StatelessModel,
        features: Mapping[str, Any],
        predictions: Mapping[str, np.ndarray],
        labels: Mapping[str, np.ndarray],
    ) -> "Sample":
        """What a model predicts, which two graphs of it may round otherwise."""
        rounding = _COARSE_ROUNDING if model.has_half_precision else _ROUNDING
        return cls(features, predictions, rounding, labels)

    def loosened(self, encoding: RowEncoding) -> "Sample":
        """The same for a model that keeps its rows so."""
        return self if encoding.is_exact else self._replace(rounding=_COARSE_ROUNDING)

    def refuse_different(self, predict: Predict) -> Mapping[str, np.ndarray]:
        """Compares what a model predicts of the records.

        An output that differs between two calls of the exported model is drawn at random: it cannot
        be compared, which is logged.

        Args:
            predict: Asks the exported model; given features like these, its predictions by name.
        """
        found, again = predict(self.features), predict(self.features)
        for name, wanted in self.predictions.items():
            if not np.array_equal(found[name], again[name], equal_nan=True):
                _log.warning(
                    "the exported model's output %r is drawn at random: it is not compared with "
                    "what was trained",
                    name,
                )
            else:
                self._refuse(name, wanted, found[name])
        return found

    def _refuse(self, name: str, wanted: np.ndarray, found: np.ndarray) -> None:
        if wanted.shape != found.shape:
            raise _different(name, f"has the shape {list(found.shape)}, not {list(wanted.shape)}")
        finite = wanted[np.isfinite(wanted)]
        limit = max(self.rounding * np.abs(finite).max(initial=0.0), _SMALLEST)
        with np.errstate(invalid="ignore"):
            off = np.abs(found.astype("f8") - wanted.astype("f8"))
        off[found == wanted] = 0.0  # infinite ones, too
        off[np.isnan(found) & np.isnan(wanted)] = 0.0
        differs = ~(off <= limit).reshape(len(wanted), -1).all(1)
        allowed = _FLIPPED * len(wanted) if _are_whole(wanted) and _are_whole(found) else 0
        if differs.sum() > allowed:
            record = int(differs.argmax())
            raise _different(
                name,
                f"differs on {int(differs.sum())} of {len(wanted)} records, first on record "
                f"{record}: {_shown(found[record])} exported, {_shown(wanted[record])} trained",
            )


def _are_whole(values: np.ndarray) -> bool:
    return bool(np.equal(np.trunc(values), values).all())


def _shown(values: np.ndarray) -> str:
    text = np.array2string(values.reshape(-1), precision=6, threshold=6, edgeitems=2)
    return " ".join(text.split())


def _different(name: str, what: str) -> RunError:
    return RunError(
        f"the exported model is not the one that was trained: its output {name!r} {what}. It is "
        "not put in place; what was trained is in the checkpoint. Look for a part of build_model() "
        "that makes something else when it is called again, such as a layer that is made from data "
        "or from random numbers without a seed"
    )
