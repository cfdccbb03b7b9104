import pytest
from absl import flags

from cloud import job_flags
from cloud.job_spec import JobSpec, Role
from tfps.errors import UserError

ARGUMENTS = ["--config=configs/my_model.py", "--job_dir=gs://b/run"]
FILE = """
from cloud.job_spec import JobSpec
from cloud.job_spec import Role

def get_job():
    return JobSpec(
        "ads", ("--config=configs/ads.py", "--job_dir=gs://b/ads"),
        (Role("chief", machine="small"), Role("worker", 4, machine="big"), Role("ps", 2)),
        environment={"A": "1", "B": "2"}, labels={"team": "ads"}, restarts=5,
    )
"""


def build(*given, arguments=ARGUMENTS):
    values = flags.FlagValues()
    job_flags.define(values)
    values(["program", *given])
    return job_flags.build(values, arguments)


def test_without_flags_a_job_is_one_process():
    assert build() == JobSpec("my-model", tuple(ARGUMENTS), (Role("chief"),))


@pytest.mark.parametrize(
    ("config", "name"),
    [("configs/my_model.py", "my-model"), ("configs.my_model", "my-model"), ("mine.py", "mine")],
)
def test_a_job_is_named_by_its_config(config, name):
    assert build(arguments=[f"--config={config}", "--job_dir=x"]).name == name
    assert build("--module=my.task", arguments=["--x"]).name == "tfps"


def test_a_flag_of_a_role_comes_before_everybodys():
    spec = build(
        *(
            "--workers=3",
            "--ps=2",
            "--evaluator",
            "--machine=type=n2-standard-8",
            "--machine=memory=16GiB",
        ),
        *(
            "--machine=worker:type=g2-standard-8",
            "--machine=worker:accelerator=NVIDIA_L4:1",
            "--machine=ps:disk_gb=200",
        ),
        *("--machine=worker:cpus=8", "--machine=disk_type=pd-ssd"),
    )
    common = {"machine": "n2-standard-8", "memory_bytes": 16 << 30, "disk_type": "pd-ssd"}
    gpu = {"accelerator": "NVIDIA_L4", "accelerators": 1, "cpus": 8, "machine": "g2-standard-8"}
    assert spec.roles == (
        Role("chief", **common),
        Role("worker", 3, **(common | gpu)),
        Role("ps", 2, disk_gb=200, **common),
        Role("evaluator", **common),
    )


def test_every_field_of_a_job_has_a_flag():
    spec = build(
        *("--name=ads", "--module=my.task", "--image=i", "--package=.", "--service_account=s"),
        *("--network=n", "--timeout_seconds=60", "--queue_seconds=70", "--restarts=0", "--spot"),
        *("--env=A=1=2", "--env=B=", "--label=team=ads"),
        arguments=["--x"],
    )
    assert spec == JobSpec(
        "ads", ("--x",), (Role("chief"),), "my.task", "i", ".", {"A": "1=2", "B": ""},
        {"team": "ads"}, "s", "n", 60, 70, True, 0,
    )  # fmt: skip


def test_flags_override_a_file(tmp_path):
    (tmp_path / "ads_job.py").write_text(FILE)
    spec = build(
        *(f"--job={tmp_path}/ads_job.py", "--workers=8", "--machine=chief:type=medium"),
        *("--env=B=3", "--label=owner=me", "--evaluator"),
        arguments=["--job_dir=gs://b/other"],
    )
    assert spec.roles == (
        Role("chief", machine="medium"),
        Role("worker", 8, machine="big"),
        Role("ps", 2),
        Role("evaluator"),
    )
    assert (spec.name, spec.restarts, spec.job_dir) == ("ads", 5, "gs://b/other")
    assert spec.argument("config") == "configs/ads.py"
    assert (spec.environment, spec.labels) == (
        {"A": "1", "B": "3"},
        {"team": "ads", "owner": "me"},
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--job=no_such.py"], "--job=no_such.py: no such file or module"),
        (["--machine=worker:cpus=8"], "--machine=worker:…: the job has no worker"),
        (["--machine=cpus=x"], "--machine=cpus=x: write a whole number of 1 or more"),
        (["--machine=chief:disk_gb=0"], "--machine=chief:disk_gb=0: write a whole number"),
        (["--machine=memory=lots"], "--machine=memory=lots: write a positive number and a unit"),
        (
            ["--workers=1", "--ps=1", "--machine=worker:accelerator=L4"],
            "as in NVIDIA_L4:1, or none",
        ),
        (["--workers=1", "--ps=1", "--machine=worker:accelerator=L4:x"], "a whole number"),
        (["--machine=boss:cpus=8"], "--machine=boss:cpus=8: 'boss' is no role; use chief, worker"),
        (["--machine=cpus"], "--machine=cpus: 'cpus' is no key=value; keys are type, cpus, memory"),
        (["--machine=cpus=8,gpus=1"], "'gpus=1' is no key=value; keys are type, cpus, memory, d"),
        (["--env=A"], "--env=A: write it as NAME=value"),
        (["--env=A=1", "--env=A=2"], "--env=A=… is given twice"),
        (["--workers=2"], "workers but no ps"),
        (["--name=A"], "--name=A"),
    ],
)
def test_flags_that_describe_no_job(given, message):
    with pytest.raises(UserError) as caught:
        build(*given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
