"""The request that makes a CustomJob, in the JSON of Vertex AI's REST API."""

import dataclasses
from typing import Any

from cloud.job_spec import JobSpec, Role
from cloud.vertex.settings import VertexSettings
from tfps.cluster.spec import JOBS
from tfps.experiment.study import Parameter, Study

_MOUNTED = "/gcs/"
_TRAINER = "trainer.task"
_ALGORITHMS = {"grid": "GRID_SEARCH", "random": "RANDOM_SEARCH"}  # bayesian is the default
_SCALES = {
    "linear": "UNIT_LINEAR_SCALE",
    "log": "UNIT_LOG_SCALE",
    "reverse_log": "UNIT_REVERSE_LOG_SCALE",
}
_DIRECTIONS = {"maximize": "max", "minimize": "min"}


def custom_job(spec: JobSpec, settings: VertexSettings) -> dict[str, Any]:
    """A CustomJob.

    Args:
        spec: The job; `checks.check` has found nothing wrong with it.
    """
    job: dict[str, Any] = {"displayName": spec.name}
    if spec.labels:
        job["labels"] = dict(spec.labels)
    job["jobSpec"] = custom_job_spec(spec, settings)
    if settings.kms_key:
        job["encryptionSpec"] = {"kmsKeyName": settings.kms_key}
    return job


def custom_job_spec(spec: JobSpec, settings: VertexSettings) -> dict[str, Any]:
    """What a CustomJob and each trial of a tuning job run.

    Returns:
        A CustomJobSpec: pool 0 has the chief, 1 the workers, 2 the ps, 3 the evaluator.
    """
    last = max(JOBS.index(role.job) for role in spec.roles)
    roles = [spec.role(job) for job in JOBS[: last + 1]]
    found: dict[str, Any] = {
        "workerPoolSpecs": [_pool(spec, role) if role else {} for role in roles],
        "scheduling": _scheduling(spec, settings),
    }
    if spec.service_account:
        found["serviceAccount"] = spec.service_account
    if spec.network:
        found["network"] = spec.network
    if spec.job_dir:
        found["baseOutputDirectory"] = {"outputUriPrefix": _uri(spec.job_dir)}
    if settings.tensorboard:
        found["tensorboard"] = settings.tensorboard
    return found


def _pool(spec: JobSpec, role: Role) -> dict[str, Any]:
    machine: dict[str, Any] = {"machineType": role.machine}
    if role.accelerator:
        machine |= {"acceleratorType": role.accelerator, "acceleratorCount": role.accelerators}
    pool: dict[str, Any] = {"machineSpec": machine, "replicaCount": str(role.replicas)}
    disk = {"bootDiskType": role.disk_type, "bootDiskSizeGb": role.disk_gb}
    if chosen := {name: value for name, value in disk.items() if value}:
        pool["diskSpec"] = chosen
    return pool | _program(spec)


def _program(spec: JobSpec) -> dict[str, Any]:
    """The same for every task."""
    arguments = list(spec.arguments)
    variables = [{"name": name, "value": value} for name, value in spec.environment.items()]
    if spec.package:
        package: dict[str, Any] = {
            "executorImageUri": spec.image,
            "packageUris": [spec.package],
            "pythonModule": spec.module,
            "args": arguments,
        }
        return {"pythonPackageSpec": package | ({"env": variables} if variables else {})}
    container: dict[str, Any] = {
        "imageUri": spec.image,
        "command": ["python", "-m", spec.module],
        "args": arguments,
    }
    return {"containerSpec": container | ({"env": variables} if variables else {})}


def _scheduling(spec: JobSpec, settings: VertexSettings) -> dict[str, Any]:
    # A lost worker must not restart the job: the chief goes on without it.
    found: dict[str, Any] = {
        "strategy": "FLEX_START" if settings.flex_start else "SPOT" if spec.spot else "STANDARD",
        "restartJobOnWorkerRestart": False,
        "disableRetries": not spec.restarts,
    }
    if spec.timeout_seconds:
        found["timeout"] = f"{spec.timeout_seconds}s"
    if spec.queue_seconds:
        found["maxWaitDuration"] = f"{spec.queue_seconds}s"
    return found


def _uri(job_dir: str) -> str:
    """The `gs://` path of a directory, which tasks may also name by where it is mounted."""
    is_mounted = job_dir.startswith(_MOUNTED)
    return f"gs://{job_dir.removeprefix(_MOUNTED)}" if is_mounted else job_dir


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
