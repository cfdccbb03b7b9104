"""The program apart from any one platform."""

import subprocess
import sys

import pytest

from cloud import deploy
from tests.cloud.deployment import exports
from tests.project import ROOT
from tfps.errors import UserError


def run(*argv, absent=()):
    """Runs the program in a process of its own, in which some packages are not installed."""
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({absent!r}))\n"
        "from cloud import deploy\n"
        "code = deploy.main(sys.argv)\n"
        "assert not any(sys.modules.get(name) for name in ('tensorflow', 'keras'))\n"
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_requests_need_no_client_no_credentials_and_no_tensorflow(tmp_path):
    exports.write(tmp_path / "census", 1)
    absent = ("google.auth", "google.cloud.storage", "requests", "tensorflow")
    place = (f"--model={tmp_path}/census", "--dry_run")
    done = run("--target=kubernetes", f"--volume=jobs:{tmp_path}", *place, absent=absent)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nkind: Deployment\nmetadata:\n  name: census-serving\n" in done.stdout
    done = run("deploy", "--target=tfserving", *place, absent=absent)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'name: "census"' in done.stdout


def test_the_program_that_a_job_will_need_is_looked_for_before(monkeypatch):
    monkeypatch.setenv("PATH", "/no/such/directory")
    deploy.check("--target=kubernetes", "gs://b/j", here=False)
    with pytest.raises(UserError, match="kubernetes: kubectl is not on this machine: install it"):
        deploy.check("--target=kubernetes", "gs://b/j", here=True)


@pytest.mark.parametrize("absent", ["google.cloud.aiplatform_v1", "google.cloud"])
def test_the_package_that_a_job_will_need_is_looked_for_before(monkeypatch, absent):
    to = (
        "--target=vertex --project=my-project --region=us-central1 --image=us-docker.pkg.dev/p/r/i "
        "--machine=type=n2-standard-2"
    )
    monkeypatch.delitem(sys.modules, "google.cloud.aiplatform_v1", raising=False)
    monkeypatch.setitem(sys.modules, absent, None)
    deploy.check(to, "gs://b/j", here=False)
    with pytest.raises(UserError, match=r"google.cloud.aiplatform_v1 is not installed: run `pip"):
        deploy.check(to, "gs://b/j", here=True)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "--target is missing; give one of tfserving, "),
        (("--target=moon",), "value should be one of <tfserving|kubernetes"),
        (("--target=tfserving",), "--model is missing; name the JOB_DIR of a job"),
        (("--target=tfserving", "list"), "--target=tfserving has no list; its verbs are deploy"),
        (("predict", "census", "--target=kubernetes"), "--target=kubernetes has no predict; its"),
        (("--target=tfserving", "--namespace=x"), "--namespace is of --target=kubernetes, not tf"),
        (("--target=kubernetes", "--output=x"), "--output is of --target=tfserving, not kuberne"),
        (("serve",), "unexpected argument 'serve': verbs are deploy, describe, undeploy"),
        (("undeploy", "--target=kubernetes"), "write it as `python -m cloud.deploy undeploy NAME"),
        (("list", "x"), "'list x': write it as `python -m cloud.deploy list …`"),
        (("list", "--dry_run"), "list takes no --dry_run; leave it out"),
        (
            ("undeploy", "x", "--machine=type=n2-standard-4"),
            "undeploy takes no --machine; leave it",
        ),
        (("--", "x"), "unexpected argument 'x'"),
        (("--no_such_flag",), "`python -m cloud.deploy --help` lists the flags"),
    ],
)
def test_wrong_command_lines(tmp_path, argv, message):
    exports.write(tmp_path / "census", 1)
    given = [text.replace("--model=M", f"--model={tmp_path}/census") for text in argv]
    done = run(*given)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_help_names_the_verbs_and_the_flags():
    for target, own in (("kubernetes", "--allow_from:"), ("tfserving", "--output:")):
        done = run(f"--target={target}", "--help")
        assert done.returncode == 0
        for text in ("rollback NAME", "--model:", "--wait_seconds:", own):
            assert text in done.stdout
