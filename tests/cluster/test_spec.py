import pytest

from tests.cluster_texts import SPEC, decode, encoded, spec_with
from tfps.cluster.spec import JOBS, Cluster
from tfps.cluster.tf_config import decode as decode_all
from tfps.errors import UserError


@pytest.mark.parametrize(
    ("job", "index"), [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 1), ("evaluator", 0)]
)
def test_round_trip(job, index):
    first = decode(encoded())
    again = decode(first.tf_config(job, index))
    assert (again.job, again.index) == (job, index)
    assert again.spec() == first.spec() == SPEC
    assert decode(again.tf_config("worker", 1)) == first
    if job != "evaluator":
        assert again.address == SPEC[job][index]


def test_names_and_address():
    found = decode(encoded())
    assert found.name == "worker 1 of 2"
    assert found.address == "w1:2222"
    assert not found.is_local
    assert decode(found.tf_config("chief", 0)).name == "chief"
    evaluator = decode(found.tf_config("evaluator", 0))
    assert evaluator.name == "evaluator 0"
    with pytest.raises(UserError, match="evaluator 0 has no address"):
        _ = evaluator.address


@pytest.mark.parametrize(("job", "index"), [("worker", 2), ("ps", -1), ("boss", 0)])
def test_no_config_for_a_task_that_is_not_there(job, index):
    with pytest.raises(UserError, match="use one of" if job == "boss" else f"no {job} {index}"):
        decode(encoded()).tf_config(job, index)


def test_no_variable_is_local_mode():
    found = decode_all({})
    assert found == Cluster(job="chief", index=0)
    assert found.is_local
    assert found.spec() == {}
    with pytest.raises(UserError, match="local mode has no TF_CONFIG"):
        found.tf_config("chief", 0)
    with pytest.raises(UserError, match="chief has no address"):
        _ = found.address


@pytest.mark.parametrize("job", ["chief", "master"])
@pytest.mark.parametrize("more", [{}, {"evaluator": ["e:1"]}])
def test_chief_alone_is_local_mode(job, more):
    assert decode(encoded({job: ["c:1"]} | more, {"type": job, "index": 0})) == Cluster()


def test_workers_without_ps_are_a_cluster():
    found = decode(encoded(spec_with(ps=None)))
    assert not found.is_local
    assert found.ps == ()
    assert "ps" not in found.spec()


def test_ipv6_and_ipv4_addresses():
    spec = spec_with(chief=["[::1]:1"], worker=["127.0.0.1:1", "[fe80::1%eth0]:65535"])
    assert decode(encoded(spec)).workers == ("127.0.0.1:1", "[fe80::1%eth0]:65535")


@pytest.mark.parametrize("job", [{}, '{"worker_pool_specs": []}', None])
def test_tf_config_of_vertex(job):
    """The form in Vertex AI's documentation; `job` comes as an object or as a string."""
    pool = "training-workerpool{}-ID-{}:2222".format
    spec = {"chief": [pool(0, 0)], "ps": [pool(2, 0)], "worker": [pool(1, 0), pool(1, 1)]}
    place = {"cloud": "ID2", "index": 0, "trial": "1", "type": "worker"}
    found = decode(encoded(spec, place, environment="cloud", job=job))
    assert found.spec() == spec
    assert found.name == "worker 0 of 2"
    main = decode(encoded(spec, place | {"type": "evaluator"}, environment="cloud", job=job))
    assert (main.job, main.spec()) == ("evaluator", spec)


@pytest.mark.parametrize("pool", range(4))
def test_cluster_spec_of_vertex(pool):
    address = "cmle-training-workerpool{}-ab-{}:2222".format
    spec = {f"workerpool{n}": [address(n, 0)] for n in range(4)}
    spec["workerpool1"].append(address(1, 1))
    place = {"type": f"workerpool{pool}", "index": 0, "trial": "1"}
    text = encoded(spec, place, environment="cloud", job="{}")
    found = decode(text, "CLUSTER_SPEC")
    assert found.job == ("chief", "worker", "ps", "evaluator")[pool]
    assert found.chief == (address(0, 0),)
    assert found.workers == (address(1, 0), address(1, 1))
    assert found.ps == (address(2, 0),)
    assert found.evaluators == (address(3, 0),)


def test_cluster_spec_of_a_single_replica_is_local_mode():
    text = encoded({"workerpool0": ["x-0:2222"]}, {"type": "workerpool0", "index": 0})
    assert decode(text, "CLUSTER_SPEC").is_local


def test_the_evaluator_stays_known_to_every_task():
    found = decode(encoded(spec_with(evaluator=["e:1"])))
    assert found.evaluators == ("e:1",)
    assert "evaluator" not in found.spec()
    for job in JOBS:
        assert decode(found.tf_config(job, 0)).evaluators == ("e:1",)
    assert decode(encoded()).evaluators == ()


def test_tf_config_goes_before_cluster_spec():
    """Vertex AI sets both; only CLUSTER_SPEC lists the evaluator."""
    pools = {f"workerpool{number}": [f"pool{number}:1"] for number in range(4)}
    both = {
        "TF_CONFIG": encoded(),
        "CLUSTER_SPEC": encoded(pools, {"type": "workerpool1", "index": 0}),
    }
    found = decode_all(both)
    assert (found.name, found.spec()) == ("worker 1 of 2", SPEC)
    assert found.evaluators == ("pool3:1",)
    del pools["workerpool3"]
    both["CLUSTER_SPEC"] = encoded(pools, {"type": "workerpool1", "index": 0})
    assert decode_all(both).evaluators == ()


def test_tf_config_of_tfjob():
    """TFJob lists every replica type, the evaluator too, and writes Master as master."""
    host = "census-{}-{}.ml.svc:2222".format
    spec = {
        "evaluator": [host("evaluator", 0)],
        "master": [host("master", 0)],
        "ps": [host("ps", 0), host("ps", 1)],
        "worker": [host("worker", n) for n in range(4)],
    }
    found = decode(encoded(spec, {"type": "master", "index": 0}, environment="cloud"))
    assert (found.job, found.chief) == ("chief", (host("master", 0),))
    assert set(found.spec()) == {"chief", "worker", "ps"}
    assert found.evaluators == (host("evaluator", 0),)
    assert decode(encoded(spec, {"type": "evaluator", "index": 0})).job == "evaluator"
