"""A TF_CONFIG without a chief: its first worker takes the chief's place."""

import pytest

from tests.cluster_texts import encoded
from tfps.cluster.tf_config import chief_worker_environment, decode

WORKERS = {"worker": ["w0:2222", "w1:2222", "w2:2222"]}
WITH_PS = WORKERS | {"ps": ["p0:2222", "p1:2222"]}


def task_of(spec, job, index):
    return decode({"TF_CONFIG": encoded(spec, {"type": job, "index": index})})


@pytest.mark.parametrize(
    ("job", "index", "name", "address"),
    [
        ("worker", 0, "chief", "w0:2222"),
        ("worker", 1, "worker 0 of 3", "w1:2222"),
        ("worker", 2, "worker 1 of 3", "w2:2222"),
        ("ps", 1, "ps 1 of 2", "p1:2222"),
    ],
)
def test_every_task_sees_the_same_cluster_with_a_worker_next_to_the_chief(
    job, index, name, address
):
    cluster = task_of(WITH_PS, job, index)
    assert cluster.spec() == {
        "chief": ["w0:2222"],
        "worker": ["w1:2222", "w2:2222", "w0:2223"],
        "ps": ["p0:2222", "p1:2222"],
    }
    assert (cluster.name, cluster.address) == (name, address)
    assert cluster.chief_works
    assert cluster.first_worker_leads


def test_the_worker_next_to_it_is_the_last():
    environ = {"TF_CONFIG": encoded(WITH_PS, {"type": "worker", "index": 0}), "HOME": "/root"}
    cluster = decode(environ)
    own = chief_worker_environment(environ, cluster)
    assert own["HOME"] == "/root"
    assert decode(own) == cluster.of_chief_worker
    assert decode(own).address == "w0:2223"


def test_its_port_may_be_named():
    environ = {"TF_CONFIG": encoded(WITH_PS, {"type": "ps", "index": 0})}
    assert decode(environ, 9000).workers[-1] == "w0:9000"


def test_one_worker_and_a_ps_are_a_cluster():
    cluster = task_of({"worker": ["w:1"], "ps": ["p:1"]}, "worker", 0)
    assert (cluster.name, cluster.workers) == ("chief", ("w:2",))


def test_without_ps_the_chief_trains_as_all_do():
    cluster = task_of(WORKERS, "worker", 2)
    assert cluster.spec() == {"chief": ["w0:2222"], "worker": ["w1:2222", "w2:2222"]}
    assert cluster.is_replicated
    assert not cluster.chief_works


def test_a_worker_alone_is_no_cluster():
    assert task_of({"worker": ["w:1"]}, "worker", 0).is_local


def test_an_evaluator_is_one_still():
    cluster = task_of(WITH_PS | {"evaluator": ["e:1"]}, "evaluator", 0)
    assert cluster.name == "evaluator 0"
    assert cluster.workers[-1] == "w0:2223"
