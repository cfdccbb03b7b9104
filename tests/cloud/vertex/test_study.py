"""Searches for better settings: what may be said, and the request that comes of it."""

import pytest

from tests.cloud.vertex.conftest import ARGUMENTS, CLUSTER, PLACE
from tests.local_cloud.cloud_fixture import cloud_fixture, cloud_process_fixture  # noqa: F401
from tfps.errors import UserError
from tfps.experiment.study import Parameter, Study

RATE = Parameter.between("task.rate", 0.1, 1.0)
GOOD = {"metric": "auc", "goal": "maximize", "parameters": (RATE,), "trials": 3}
FILE = """
from tfps import Parameter, Study

def get_study():
    return Study("loss", "minimize", (Parameter.between("task.dim", 2, 8),), 6, 2, 1, "random")
"""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metric": ""}, "study: metric=''; write a metric's name, such as auc"),
        ({"goal": "max"}, "goal='max'; use one of maximize, minimize"),
        ({"algorithm": "best"}, "algorithm='best'; use one of bayesian, grid, random"),
        ({"trials": 0}, "trials=0, parallel_trials=1; write 1 or more"),
        ({"parallel_trials": 4}, "no more at the same time than in all"),
        ({"failed_trials": -1}, "failed_trials=-1 must be 0 or more"),
        ({"parameters": ()}, "give one or more, each field once"),
        ({"parameters": (RATE, RATE)}, "each field once"),
        ({"algorithm": "grid"}, "the grid has no end, since task.rate is continuous"),
    ],
)
def test_a_study_that_cannot_be(changes, message):
    with pytest.raises(UserError) as caught:
        Study(**{**GOOD, **changes})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Parameter.between("task.x", 1, 1), "1 to 1 is no range"),
        (lambda: Parameter.between("task.x", 0.0, float("inf")), "0.0 to inf is no range"),
        (lambda: Parameter.between("task.x", 0, 1, "log"), "a log scale begins above 0, not at 0"),
        (lambda: Parameter.between("task.x", 1, 2, "cubic"), "scale='cubic'; use one of linear"),
        (lambda: Parameter.between("rate", 1, 2), "'rate' is no field; write its dotted name"),
        (lambda: Parameter.among("task.x", 1), "give two or more values"),
        (lambda: Parameter.among("task.x", 1, 1), "each once"),
        (lambda: Parameter.among("task.x", 1, "a"), "all numbers or all texts"),
    ],
)
def test_a_parameter_that_cannot_be(make, message):
    with pytest.raises(UserError) as caught:
        make()
    assert message in str(caught.value)


def test_trials_have_directories_of_their_own(submit, tmp_path):
    (tmp_path / "study.py").write_text(FILE)
    flags = (*PLACE, *CLUSTER, f"--tune={tmp_path}/study.py", "--dry_run", "--")
    for job_dir in ("/gcs/bucket/run", ""):
        module = "trainer.task" if job_dir else "my.task"
        arguments = (*ARGUMENTS[:1], *([f"--job_dir={job_dir}"] if job_dir else []))
        code, out, err = submit(f"--module={module}", *flags, *arguments)
        assert (code, out) == (2, "")
        assert "--tune needs --job_dir=gs://BUCKET/PATH, below which each trial has its own" in err


def test_a_study_is_sent_once_and_followed(cloud, vertex, vertex_submit, tmp_path):
    (tmp_path / "study.py").write_text(FILE)
    vertex.faults["create"] = ["lost"]
    label = "ml.googleapis.com/trial_id"
    vertex.write("workerpool1-0", "learning", 1, labels={label: "2"})
    flags = (*CLUSTER, f"--tune={tmp_path}/study.py", "--wait", "--", *ARGUMENTS)
    code, out, _ = vertex_submit(*flags)
    assert code == 0
    assert "[submit] smoke: SUCCEEDED" in out
    assert "[trial 2 worker 0] learning" in out
    job = vertex.created
    assert "/hyperparameterTuningJobs/" in job.name
    assert (job.max_trial_count, job.parallel_trial_count, job.max_failed_trial_count) == (6, 2, 1)
    assert job.study_spec.algorithm.name == "RANDOM_SEARCH"
    (parameter,) = job.study_spec.parameters
    assert (parameter.parameter_id, parameter.integer_value_spec.max_value) == ("task.dim", 8)
    trial = job.trial_job_spec.worker_pool_specs[1].container_spec
    own = ("--chief_works", *ARGUMENTS, "--train.best_metric=min:loss")
    assert tuple(trial.args) == own
    listed = vertex_submit("list")[1]
    assert job.name in listed
    assert vertex_submit("cancel", job.name)[0] == 0
