"""The program apart from any one platform."""

import subprocess
import sys

import pytest
import yaml

from tests.project import ROOT

JOB = ("--config=configs/smoke.py", "--job_dir=gs://bucket/run")


def run(*argv, absent=()):
    """Runs the program in a process of its own, in which some packages are not installed."""
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({absent!r}))\n"
        "from cloud import submit\n"
        "code = submit.main(sys.argv)\n"
        "assert not any(sys.modules.get(name) for name in ('tensorflow', 'keras'))\n"
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_requests_need_no_client_no_credentials_and_no_tensorflow():
    flags = (
        "--project=my-project",
        "--region=us-central1",
        "--image=r/i",
        "--machine=type=n2-standard-8",
    )
    absent = ("google.auth", "google.cloud.aiplatform_v1", "google.cloud.storage", "requests")
    done = run("--target=vertex", *flags, "--dry_run", "--", *JOB, absent=(*absent, "tensorflow"))
    assert (done.returncode, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout)["displayName"] == "smoke"


@pytest.mark.parametrize(
    ("deploy_to", "message"),
    [
        ("--target=moon", "value should be one of <tfserving"),
        (
            "--target=vertex --project=my-project --region=us-central1",
            "Vertex AI takes images from",
        ),
        ("--target=kubernetes --name=Clicks", "--name=Clicks: write 1 to 40 lowercase"),
        ("--target=kubernetes --name=clicks", ""),
    ],
)
def test_what_a_job_could_not_deploy_is_refused_before_it_is_sent(deploy_to, message):
    flags = (
        "--project=my-project",
        "--region=us-central1",
        "--image=r/i",
        "--machine=type=n2-standard-8",
    )
    arguments = (*JOB, f"--deploy_to={deploy_to}")
    done = run("--target=vertex", *flags, "--dry_run", "--", *arguments, absent=("kubernetes",))
    assert done.returncode == (2 if message else 0)
    if message:
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)
        assert f"error: --deploy_to={deploy_to}: " in done.stderr
        assert message in done.stderr


def test_the_extra_of_an_absent_package_is_named():
    package = "google.cloud.aiplatform_v1"
    place = ("--target=vertex", "--project=my-project", "--region=us-central1")
    done = run("list", *place, absent=(package,))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{package} is not installed: run `pip install 'tfps[vertex]'`" in done.stderr


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "--target is missing; give one of "),
        (("--target=moon",), "value should be one of <local|vertex"),
        (("--target=local", "list"), "--target=local has no list: it keeps no jobs to speak of"),
        (("--nospot=true",), "error: --nospot=true does not take an argument; `python -m cloud.s"),
        (("--target=local", "--project=p", "--", *JOB), "--project is of --target=vertex, not loc"),
    ],
)
def test_a_wrong_target(argv, message):
    done = run(*argv)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
