"""A job as a TrainJob of Kubeflow Trainer 2, and the TrainingRuntime that it is made by."""

from collections.abc import Sequence

from cloud.job_spec import JobSpec
from cloud.kubernetes import manifests, pod
from cloud.kubernetes.kubectl import Json
from cloud.kubernetes.manifests import TRAINJOB
from cloud.kubernetes.pod import Volume

_STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def runtime(spec: JobSpec, volumes: Sequence[Volume] = ()) -> Json:
    """A JobSet for this job alone, in which the workers are the trainer's nodes.

    Trainer has no runtime for TensorFlow. It wants the nodes of a trainer to be the pods of one
    Job; the chief and the ps keep a Job for each task.
    """
    own = manifests.jobset_spec(spec, volumes, TRAINJOB)
    nodes = spec.role("worker") or spec.roles[0]
    for job in own["replicatedJobs"]:
        if job["name"] == nodes.job:
            job["template"] = {"metadata": {"labels": _STEP}, **job["template"]}
    of_runtime = {"mlPolicy": {"numNodes": nodes.replicas}, "template": {"spec": own}}
    metadata = manifests.metadata_of(spec)
    return pod.manifest(TRAINJOB.api, "TrainingRuntime", metadata, spec=of_runtime)


def trainjob(spec: JobSpec) -> Json:
    """The TrainJob, of whose name its JobSet is."""
    group = TRAINJOB.api.partition("/")[0]
    reference = {"apiGroup": group, "kind": "TrainingRuntime", "name": spec.name}
    metadata = manifests.metadata_of(spec, is_job=True)
    return pod.manifest(TRAINJOB.api, "TrainJob", metadata, spec={"runtimeRef": reference})
