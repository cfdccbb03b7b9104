"""Runs kept by MLflow, where MLFLOW_TRACKING_URI says."""

import os
import re
import time
from collections.abc import Mapping

from tfps.errors import UserError

_EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"
# MLflow itself would try for an hour.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
_LONGEST = 6000  # characters of a value
_MOST = 100  # params, or tags, that MLflow takes at a time
_NO_NAME = re.compile(r"[^/\w.\- :]")


def _name(name: str) -> str:
    """A name that MLflow takes, such as ndcg_10 for ndcg@10."""
    return _NO_NAME.sub("_", name)


class MlflowTracker:
    """Keeps a run in MLflow.

    What was set for a run cannot be changed there: what is set again when a job resumes is kept
    as tags that begin with `now.`.
    """

    name = "mlflow"

    def __init__(self) -> None:
        for variable, value in _PATIENCE.items():
            os.environ.setdefault(variable, value)
        try:
            import mlflow
        except ImportError:
            raise UserError("--track=mlflow needs MLflow: pip install 'tfps[mlflow]'") from None
        self._entities = mlflow.entities
        self._client = mlflow.MlflowClient()
        self._run = ""
        self._settings: dict[str, str] = {}

    def connect(self, experiment: str, title: str, known: str | None) -> str:
        client = self._client
        if known:
            found = client.get_run(known)
            self._settings = dict(found.data.params)
            client.update_run(known, status="RUNNING")
            self._run = known
            return known
        name = os.environ.get(_EXPERIMENT) or experiment
        kept = client.get_experiment_by_name(name)
        number = kept.experiment_id if kept else client.create_experiment(name)
        self._run = client.create_run(number, run_name=title).info.run_id
        return self._run

    def describe(self, settings: Mapping[str, str]) -> None:
        kept = {name: value[:_LONGEST] for name, value in settings.items()}
        new = {name: value for name, value in kept.items() if name not in self._settings}
        changed = {
            f"now.{name}": value
            for name, value in kept.items()
            if name in self._settings and self._settings[name] != value
        }
        params = [self._entities.Param(_name(name), value) for name, value in new.items()]
        tags = [self._entities.RunTag(_name(name), value) for name, value in changed.items()]
        for first in range(0, max(len(params), len(tags)), _MOST):
            some = slice(first, first + _MOST)
            self._client.log_batch(self._run, params=params[some], tags=tags[some])
        self._settings |= new

    def log(self, step: int, at: float, values: Mapping[str, float]) -> None:
        when = round(1000 * at)
        metrics = [self._entities.Metric(_name(name), x, when, step) for name, x in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def end(self, has_finished: bool) -> None:
        status = "FINISHED" if has_finished else "FAILED"
        self._client.set_terminated(self._run, status, round(1000 * time.time()))
