import json

import pytest

from cloud import cluster_in_file
from tests.cluster_texts import SPEC, encoded
from tfps.cluster.spec import port_error
from tfps.cluster.tf_config import chief_worker_environment, decode
from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName

CHIEF = {"type": "chief", "index": 0}
POOLS = {"workerpool0": ["c:2222"], "workerpool1": ["w0:2222"], "workerpool2": ["p0:2222"]}


def chiefs(spec=SPEC, **more):
    """The chief's environment."""
    return {"TF_CONFIG": encoded(spec, CHIEF, **more)}


@pytest.mark.parametrize(("port", "address"), [(0, "c:2223"), (9000, "c:9000")])
@pytest.mark.parametrize("task", [CHIEF, {"type": "ps", "index": 1}, {"type": "evaluator"}])
def test_every_task_adds_the_same_worker(port, address, task):
    cluster = decode({"TF_CONFIG": encoded(SPEC, {"index": 0} | task)}, port)
    assert cluster.workers == ("w0:2222", "w1:2222", address)
    assert cluster.chief_works
    assert cluster.tasks() == {"chief": 1, "worker": 3, "ps": 2}
    assert cluster.peers()[TaskName("worker", 2)] == address


def test_without_being_asked_nobody_does():
    cluster = decode(chiefs())
    assert cluster.workers == ("w0:2222", "w1:2222")
    assert not cluster.chief_works


def test_the_worker_has_the_chiefs_variables_with_a_task_of_its_own():
    environ = chiefs(environment="cloud") | {"HOME": "/root"}
    own = chief_worker_environment(environ, decode(environ, 0))
    assert own["HOME"] == "/root"
    assert json.loads(own["TF_CONFIG"])["environment"] == "cloud"
    cluster = decode(own, 0)
    assert (cluster.name, cluster.address) == ("worker 2 of 3", "c:2223")
    assert cluster == decode(environ, 0).of_chief_worker


def test_the_worker_finds_a_large_cluster_in_the_chiefs_file(tmp_path):
    config, text = cluster_in_file.split(chiefs()["TF_CONFIG"])
    (tmp_path / "cluster.json").write_text(text)
    environ = {"TF_CONFIG": config, "TF_CONFIG_FILE": str(tmp_path / "cluster.json")}
    own = decode(chief_worker_environment(environ, decode(environ, 0)), 0)
    assert own == decode(environ, 0).of_chief_worker
    assert own.address == "c:2223"


@pytest.mark.parametrize("has_both", [False, True])
def test_vertex_ai_has_two_variables(has_both):
    job = {"cluster": POOLS, "task": {"type": "workerpool0", "index": 0, "trial": "3"}}
    environ = {"CLUSTER_SPEC": json.dumps(job)}
    if has_both:
        environ |= chiefs({"chief": ["c:2222"], "worker": ["w0:2222"], "ps": ["p0:2222"]})
    own = chief_worker_environment(environ, decode(environ, 0))
    assert json.loads(own["CLUSTER_SPEC"])["task"] == {
        "type": "workerpool1",
        "index": 1,
        "trial": "3",
    }
    assert decode(own, 0).name == "worker 1 of 2"


def test_an_ipv6_address_keeps_its_brackets():
    cluster = decode(chiefs(SPEC | {"chief": ["[::1]:2222"]}), 0)
    assert cluster.workers[-1] == "[::1]:2223"


@pytest.mark.parametrize(
    ("spec", "port", "message"),
    [
        (
            SPEC | {"ps": ["C:2223"]},
            0,
            "would have the address C:2223 of ps 0; name another port with --chief_works ",
        ),
        (SPEC, 2222, "would have the address c:2222 of chief"),
        (SPEC | {"chief": ["c:65535"]}, 0, "the chief's port, 65535, is the last"),
        ({"chief": ["c:1"], "worker": ["w:1"]}, 0, r"no ps: the chief trains .*allreduce"),
        ({"chief": ["c:1"]}, 0, "no cluster: the one process trains; leave the flag out"),
        ({"chief": ["c:1"], "ps": ["p:1"]}, 0, "has no workers to serve"),
        ({"chief": ["c:1", "d:1"], "worker": ["w:1"], "ps": ["p:1"]}, 0, "keep exactly one"),
    ],
)
def test_what_cannot_be_is_refused(spec, port, message):
    with pytest.raises(UserError, match=message):
        decode(chiefs(spec), port)


def test_without_a_cluster_there_is_nobody_beside_whom_to_work():
    with pytest.raises(UserError, match="no cluster: the one process trains"):
        decode({}, 0)


def test_its_port_is_given_by_a_flag():
    cluster = decode(chiefs(), 0)
    assert "another one with --chief_works --chief_worker_port=" in str(
        port_error(cluster.of_chief_worker, "x")
    )
    assert "another one in TF_CONFIG" in str(port_error(cluster, "x"))
