"""The request that makes a HyperparameterTuningJob, in the JSON of Vertex AI's REST API."""

import dataclasses
from typing import Any

from cloud.job_spec import JobSpec
from cloud.vertex.custom_job import custom_job_spec
from cloud.vertex.settings import VertexSettings
from tfps.experiment.study import Parameter, Study

_TRAINER = "trainer.task"
_ALGORITHMS = {"grid": "GRID_SEARCH", "random": "RANDOM_SEARCH"}  # bayesian is the default
_SCALES = {
    "linear": "UNIT_LINEAR_SCALE",
    "log": "UNIT_LOG_SCALE",
    "reverse_log": "UNIT_REVERSE_LOG_SCALE",
}
_DIRECTIONS = {"maximize": "max", "minimize": "min"}


def tuning_job(spec: JobSpec, settings: VertexSettings, study: Study) -> dict[str, Any]:
    """A HyperparameterTuningJob.

    Vertex AI gives each trial's tasks one argument more for each parameter, `--FIELD=VALUE`, and a
    directory of its own below the job_dir.

    Args:
        spec: The job of one trial; `checks.check` has found nothing wrong with it.
    """
    job: dict[str, Any] = {"displayName": spec.name}
    if spec.labels:
        job["labels"] = dict(spec.labels)
    job |= {
        "studySpec": _study_spec(study),
        "maxTrialCount": study.trials,
        "parallelTrialCount": study.parallel_trials,
        "trialJobSpec": custom_job_spec(_trial(spec, study), settings),
    }
    if study.failed_trials:
        job["maxFailedTrialCount"] = study.failed_trials
    if settings.kms_key:
        job["encryptionSpec"] = {"kmsKeyName": settings.kms_key}
    return job


def _trial(spec: JobSpec, study: Study) -> JobSpec:
    """The job of a trial, whose trainer refuses a metric that it does not have."""
    if spec.module != _TRAINER:
        return spec
    best = f"--train.best_metric={_DIRECTIONS[study.goal]}:{study.metric}"
    return dataclasses.replace(spec, arguments=(*spec.arguments, best))


def _study_spec(study: Study) -> dict[str, Any]:
    found: dict[str, Any] = {
        "metrics": [{"metricId": study.metric, "goal": study.goal.upper()}],
        "parameters": [_parameter_spec(parameter) for parameter in study.parameters],
    }
    if study.algorithm in _ALGORITHMS:
        found["algorithm"] = _ALGORITHMS[study.algorithm]
    return found


def _parameter_spec(parameter: Parameter) -> dict[str, Any]:
    found: dict[str, Any] = {"parameterId": parameter.field}
    if not parameter.scale:
        kind = "categorical" if isinstance(parameter.values[0], str) else "discrete"
        return found | {f"{kind}ValueSpec": {"values": list(parameter.values)}}
    least, greatest = parameter.values
    found["scaleType"] = _SCALES[parameter.scale]
    if parameter.is_continuous:
        return found | {"doubleValueSpec": {"minValue": least, "maxValue": greatest}}
    return found | {"integerValueSpec": {"minValue": str(least), "maxValue": str(greatest)}}
