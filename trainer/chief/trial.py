"""A trial of a tuning job, which learns from a file how good its settings are."""

import collections
import json
import logging
import math
import pathlib
import time
from collections.abc import Iterable, Mapping
from typing import Self

from tfps.errors import RunError
from tfps.evaluation.history import Evaluation

_ID = "CLOUD_ML_TRIAL_ID"
_FILE = "CLOUD_ML_HP_METRIC_FILE"
_DEFAULT_FILE = "/tmp/hypertune/output.metrics"  # noqa: S108 - where Vertex AI looks
_MOST_LINES = 100
_log = logging.getLogger(__name__)


class Trial:
    """Reports metrics as the cloudml-hypertune package does: lines of JSON, all values texts.

    Vertex AI picks those whose key is the metric of its study.
    """

    def __init__(self, number: str, path: str):
        self._number = number
        self._path = pathlib.Path(path)
        self._lines: collections.deque[str] = collections.deque(maxlen=_MOST_LINES)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self | None:
        """The trial that this process belongs to, None if it is none.

        Args:
            environ: The environment variables, for example `os.environ`.
        """
        number = environ.get(_ID, "")
        return cls(number, environ.get(_FILE) or _DEFAULT_FILE) if number else None

    def report(self, evaluations: Iterable[Evaluation]) -> None:
        """Adds every metric of some evaluations; a value that is no number is only logged."""
        for evaluation in evaluations:
            for name, value in evaluation.metrics.items():
                if math.isfinite(value):
                    self._lines.append(self._line(name, value, evaluation.steps))
                else:
                    _log.warning("%s is %s: trial %s does not report it", name, value, self._number)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text("".join(f"{line}\n" for line in self._lines))
        except OSError as error:
            raise RunError(
                f"trial {self._number} cannot report its metrics: {error}; set {_FILE} to a file "
                "that can be written"
            ) from None

    def _line(self, name: str, value: float, steps: int) -> str:
        entry = {
            "timestamp": time.time(),
            "trial": self._number,
            name: str(value),
            "global_step": str(steps),
            "checkpoint_path": "",
        }
        return json.dumps(entry, sort_keys=True)
