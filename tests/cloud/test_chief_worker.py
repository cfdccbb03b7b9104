"""Which jobs have a worker next to the chief, and what their requests say of it."""

import dataclasses

import pytest

from cloud import job_spec
from cloud.job_spec import JobSpec, Role, is_set
from cloud.remote_target import teller
from cloud.submit import main
from tests.cloud.kubernetes.jobs import container, pods, render
from tfps.errors import UserError

ARGUMENTS = ("--config=configs/smoke.py", "--job_dir=gs://b/run")
GIB = 1 << 30


def job(*arguments, chief=(), worker=(), **fields):
    chief, worker = ({"cpus": 4, "memory_bytes": GIB} | dict(each) for each in (chief, worker))
    roles = (Role("chief", **chief), Role("worker", 2, **worker), Role("ps", 1, cpus=4))
    own = {"name": "trial", "arguments": (*ARGUMENTS, *arguments), "roles": roles}
    return JobSpec(**own | {"image": "r/i:1"} | fields)


def added(spec, has_own_machines=True):
    """The arguments that a job is given."""
    found = job_spec.with_default(spec, has_own_machines).arguments
    count = len(found) - len(spec.arguments)
    assert found[count:] == spec.arguments  # which come last and therefore win
    return list(found[:count])


GPU = {"accelerator": "nvidia-l4", "accelerators": 1}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (job(), ["--chief_works"]),
        (job(chief=GPU, worker=GPU), ["--chief_works"]),
        (job(restarts=5), ["--chief_works", "--chief_worker_restarts=5"]),
        (job("--chief_works", chief={"cpus": 1}, restarts=5), ["--chief_worker_restarts=5"]),
        (job("--nochief_works"), []),
        (job("--chief_works=false"), []),
        (job(worker=GPU), []),
        (job(chief={"memory_bytes": 2 * GIB}), []),
        (job(chief={"cpus": 2}), []),
        (job(chief={"cpus": 0}, worker={"cpus": 0}), []),  # nobody said what they have
        (job(module="mine.task"), []),
        (job("--mode.name=allreduce", roles=(Role("chief", cpus=4), Role("worker", cpus=4))), []),
        (job(roles=(Role("chief", cpus=4),)), []),
    ],
)
def test_a_chief_with_a_workers_machine_works(spec, expected):
    assert added(spec) == expected


def test_where_tasks_share_machines_it_has_to_be_asked_for():
    assert added(job(), False) == []
    assert added(job("--chief_works", restarts=5), False) == ["--chief_worker_restarts=5"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--chief_works"], True),
        (["-chief_works"], True),
        (["--chief_works=1"], True),
        (["--chief_works=True"], True),
        (["--chief_works=0"], False),
        (["--nochief_works", "--chief_works"], True),
        (["--chief_works", "--nochief_works"], False),
        (["--chief_worker_port=1"], False),
        ([], False),
    ],
)
def test_a_boolean_flag_is_read_as_absl_reads_it(arguments, expected):
    assert is_set("chief_works", arguments) is expected


def test_without_ps_it_is_refused():
    roles = (Role("chief"), Role("worker", 2))
    spec = job("--chief_works", "--mode.name=allreduce", roles=roles)
    with pytest.raises(UserError, match="no ps: its chief trains already; leave the flag out"):
        job_spec.check_chief_works(spec)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], None), (["--chief_works"], 2223), (["--chief_works", "--chief_worker_port=99"], 99)],
)
def test_its_port_follows_the_chiefs(arguments, expected):
    assert job_spec.port(job(*arguments), 2222) == expected


@pytest.mark.parametrize("text", ["x", "65536", "2222"])
def test_what_is_no_port_for_it_is_refused(text):
    spec = job("--chief_works", f"--chief_worker_port={text}")
    with pytest.raises(UserError, match=f"--chief_worker_port={text}: name a port"):
        job_spec.port(spec, 2222)


@pytest.mark.parametrize("target", ["jobset", "tfjob"])
@pytest.mark.parametrize(("more", "port"), [((), 2223), (("--chief_worker_port=4000",), 4000)])
def test_on_kubernetes_the_chiefs_pod_has_its_port_and_gpus(target, more, port):
    spec = job("--chief_works", *more, chief=GPU, worker=GPU)
    policy, _ = render(target, spec)
    [ingress] = policy["spec"]["ingress"]
    assert [each["port"] for each in ingress["ports"]] == [2222, port]
    found = {role: container(pod) for role, pod in pods(target, spec).items()}
    ports = {role: [each["containerPort"] for each in own["ports"]] for role, own in found.items()}
    assert ports == {"chief": [2222, port], "worker": [2222], "ps": [2222]}
    assert found["chief"]["resources"] == found["worker"]["resources"]
    idle = dataclasses.replace(spec, arguments=ARGUMENTS)
    with pytest.raises(UserError, match="chief: accelerator=nvidia-l4, but the chief of a cluster"):
        render(target, idle)


def test_on_kubernetes_prometheus_asks_at_another_port():
    spec = job("--chief_works", "--metrics_port=2223", "--metrics_address=0.0.0.0")
    with pytest.raises(UserError, match="not TensorFlow's, 2222 and 2223, as in"):
        render("jobset", spec)


VERTEX = (
    *("--target=vertex", "--project=my-project", "--region=us-central1", "--image=r/i:1"),
    *("--dry_run", "--workers=2", "--ps=1", "--machine=type=n2-standard-8"),
)
L4 = ("--machine=chief:type=g2-standard-8", "--machine=chief:accelerator=NVIDIA_L4:1")


@pytest.mark.parametrize("arguments", [(), ("--nochief_works",)])
def test_on_vertex_ai_an_idle_chief_gets_no_gpu(capfd, arguments):
    assert main(["cloud.submit", *VERTEX, *L4, "--", *ARGUMENTS, *arguments]) == 2
    error = capfd.readouterr().err
    assert "give GPUs to the workers with --machine=worker:accelerator=…, or add --ch" in error
    assert main(["cloud.submit", *VERTEX, *L4, "--", *ARGUMENTS, "--chief_works"]) == 0


def test_on_vertex_ai_replicas_without_ps_may_all_have_gpus(capfd):
    arguments = ("--ps=0", "--machine=type=g2-standard-8,accelerator=NVIDIA_L4:1", "--", *ARGUMENTS)
    assert main(["cloud.submit", *VERTEX, *arguments, "--mode.name=allreduce"]) == 0
    assert capfd.readouterr().out.count("NVIDIA_L4") == 2  # of the chief's pool and the workers'


def test_lines_of_a_chiefs_container_are_those_of_who_wrote_them():
    assert teller("chief", {"role": "worker", "index": "2"}) == "worker 2"
    assert teller("chief", {"role": "chief", "index": "0"}) == "chief"
    assert teller("worker 1", {"role": "worker", "index": "2"}) == "worker 1"
    assert teller("chief", {}) == "chief"
