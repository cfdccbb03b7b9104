"""Jobs that Vertex AI would refuse, or that would waste what they cost: nothing is sent."""

import pytest
from google.cloud.aiplatform_v1.types import AcceleratorType

from cloud.vertex import checks
from tests.cloud.vertex.conftest import ARGUMENTS, CLUSTER, IMAGE, PLACE

GPU = ("--machine=worker:type=g2-standard-8", "--machine=worker:accelerator=NVIDIA_L4:1")
FLEX = ("--flex_start", "--machine=type=g2-standard-8", "--machine=accelerator=NVIDIA_L4:1")
KEY = "projects/p/locations/{}/keyRings/r/cryptoKeys/k"
BOARD = "--tensorboard=projects/p/locations/{}/tensorboards/1"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--project="], "--project is missing; Vertex AI needs one, such as my-project"),
        (["--project=My_Project"], "--project=My_Project: write one such as my-project"),
        (["--region="], "--region is missing"),
        (["--region=us-central1-a"], "--region=us-central1-a: write one such as us-central1"),
        (["--image="], "--image is missing: Vertex AI starts tasks from a container image"),
        (["--image=My Image"], "--image=My Image is no image; write REGISTRY/…/NAME:TAG"),
        (["--machine=type="], "chief: --machine=chief:type=… or --machine=type=… is"),
        (["--machine=worker:type=big"], "worker: big is no machine type; write one such as"),
        (
            ["--machine=worker:type=n2-standard-7"],
            "n2-standard-7 is not known; n2 machines have 2, 4, 8, 16,",
        ),
        (
            ["--machine=worker:type=g2-standard-8"],
            "g2-standard-8 has NVIDIA_L4:1, not none; correct",
        ),
        (
            [*GPU[:1], "--machine=worker:accelerator=NVIDIA_L4:2"],
            "has NVIDIA_L4:1, not NVIDIA_L4:2",
        ),
        (
            ["--machine=worker:type=g2-standard-9", GPU[1]],
            "machine types of its family are g2-standar",
        ),
        ([GPU[1]], "n2-standard-8 cannot have a NVIDIA_L4; it comes with g2-standard-4, g2-"),
        (
            ["--machine=worker:accelerator=L4:1"],
            "cannot have a L4; GPUs are NVIDIA_A100_80GB, NVIDIA_B2",
        ),
        (
            ["--machine=worker:accelerator=NVIDIA_TESLA_T4:1"],
            "n2-standard-8 cannot have a NVIDIA_TESLA_T4;",
        ),
        (
            [
                "--machine=worker:type=n1-standard-32",
                "--machine=worker:accelerator=NVIDIA_TESLA_T4:1",
            ],
            "n1-standard-32 can have 2 or 4 of NVIDIA_TESLA_T4, not 1",
        ),
        (
            ["--machine=chief:type=g2-standard-8", "--machine=chief:accelerator=NVIDIA_L4:1"],
            "computes nothing",
        ),
        (
            ["--machine=cpus=8"],
            "chief: Vertex AI has no cpus, only machine types; give --machine=c",
        ),
        (["--machine=ps:memory=8GiB"], "ps: Vertex AI has no memory"),
        (["--machine=disk_gb=50"], "chief: disk_gb=50; write 100 to 64000"),
        (
            ["--machine=worker:disk_type=ssd"],
            "worker: disk_type=ssd; Vertex AI has pd-ssd, pd-standard",
        ),
        (["--restarts=7"], "--restarts=7: Vertex AI retries a job up to 3 times or never"),
        (["--queue_seconds=60"], "limits the wait for machines only with --flex_start"),
        (["--flex_start"], "--flex_start is for machines with GPUs, in every role"),
        ([*FLEX, "--spot"], "--spot and --flex_start are two ways to get machines; give one"),
        ([*FLEX, "--timeout_seconds=700000"], "with --flex_start a job has 604800 at most"),
        (
            [*FLEX, "--machine=ps:type=n2-standard-8", "--machine=ps:accelerator=none"],
            "the chief has g2-standard-8 with NVIDIA_L4:1 and the ps n2-standard-8; give --machine",
        ),
        (
            [*FLEX, "--machine=ps:disk_gb=200"],
            "and the ps g2-standard-8 with NVIDIA_L4:1 and a disk of 200",
        ),
        ([f"--env=V{n}=1" for n in range(101)], "101 --env; Vertex AI takes 100 at most"),
        (["--env=AIP_MODEL_DIR=x"], "--env=AIP_MODEL_DIR=…: Vertex AI sets variables of that name"),
        (["--env=TF_CONFIG={}"], "the platform sets TF_CONFIG for each task"),
        ([f"--label=l{n}=1" for n in range(61)], "61 --label; give 60 at most"),
        (["--label=Team=ads"], "--label=Team=ads: on Google Cloud keys and values are at most 63"),
        (["--name=My_Job"], "--name=My_Job: write 1 to 40 lowercase letters"),
        (["--service_account=trainer"], "--service_account=trainer: write its e-mail address, su"),
        (
            ["--network=default"],
            "write projects/NUMBER/global/networks/NAME, with the project's num",
        ),
        (["--network=projects/my-project/global/networks/n"], "number, not its id"),
        ([BOARD.format("us-central1")], "--tensorboard needs --service_account as well"),
        ([BOARD.format("europe-west4")], "is in europe-west4, but the job in us-central1; Vertex"),
        (["--tensorboard=7"], "write its whole name, projects/P/locations/L/tensorboards/ID"),
        ([f"--kms_key={KEY.format('europe-west4')}"], "is in europe-west4, but the job in us-cen"),
        (["--kms_key=k"], "--kms_key=k: write its whole name"),
        (["--package=."], "--package=. needs --staging_bucket=gs://BUCKET/PATH"),
        (["--package=https://x/y.tar.gz"], "Vertex AI installs packages from gs://"),
        (["--staging_bucket=bucket"], "--staging_bucket=bucket: write gs://BUCKET/PATH"),
        (["--workers=0"], "the job has ps but no worker"),
        (["--chaos=kill:ps:0@1s"], "--chaos is of --target=local, not vertex"),
        (["--wrokers=2"], "Unknown command line flag 'wrokers'"),
        (["--format=xml"], "--format=xml"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_job_is_told_in_one_message_and_not_sent(vertex, vertex_submit, flags, message):
    for mode in ([], ["--dry_run"]):
        code, out, err = vertex_submit(*CLUSTER, *flags, *mode, "--", *ARGUMENTS)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("error: ")
        assert message in err
    assert vertex.counts == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the tasks have no arguments: put them after --"),
        (["--config=configs/smoke.py"], "the tasks' arguments have no --job_dir"),
        (["--job_dir=gs://b/run"], "the tasks' arguments have no --config"),
        (["--config=c.py", "--job_dir=runs/x"], "--job_dir=runs/x: tasks on Vertex AI share no d"),
        (["--config=c.py", "--job_dir=gs://"], "--job_dir=gs://: tasks on Vertex AI share no disk"),
    ],
)
def test_arguments_with_which_no_task_could_run(vertex, vertex_submit, arguments, message):
    code, out, err = vertex_submit(*CLUSTER, "--", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert vertex.counts == {}


@pytest.mark.parametrize(
    "flags",
    [
        [*GPU],
        ["--machine=worker:type=a2-highgpu-8g", "--machine=worker:accelerator=NVIDIA_TESLA_A100:8"],
        [
            "--machine=worker:type=n1-standard-16",
            "--machine=worker:accelerator=NVIDIA_TESLA_V100:2",
        ],
        ["--machine=worker:type=n1-highmem-96", "--machine=worker:accelerator=NVIDIA_TESLA_T4:4"],
        ["--machine=worker:type=c3-standard-22"],
        [*FLEX, "--queue_seconds=3600", "--timeout_seconds=604800"],
        ["--image=tfps/train@sha256:" + "0" * 64],
        ["--image=localhost:5000/tfps"],
        ["--project=example.com:my-project"],
    ],
    ids=str,
)
def test_a_job_that_can_run_is_rendered(submit, flags):
    code, out, err = submit(*PLACE, *CLUSTER, *flags, "--dry_run", "--", *ARGUMENTS)
    assert (code, err) == (0, "")
    assert out.startswith("displayName: smoke\n")


@pytest.mark.parametrize("endpoint", ["https://127.0.0.1:1", "http://example.com", "x"])
def test_a_stand_in_is_on_this_machine(submit, endpoint):
    code, _, err = submit("list", *PLACE, f"--vertex_endpoint={endpoint}")
    assert code == 2
    assert f"--vertex_endpoint={endpoint}: write http://127.0.0.1:PORT" in err


def test_a_mounted_bucket_is_named_by_its_own_name(submit):
    arguments = ("--config=configs/smoke.py", "--job_dir=/gcs/bucket/run")
    _, out, _ = submit(*PLACE, *CLUSTER, "--dry_run", "--", *arguments)
    assert "outputUriPrefix: gs://bucket/run\n" in out
    assert IMAGE in out


def test_every_gpu_of_the_table_is_one_of_vertex():
    own = {accelerator for accelerator, _ in checks.BUILT_IN.values()} | set(checks.ADDED)
    assert own <= set(AcceleratorType.__members__)
