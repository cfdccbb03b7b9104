"""Every command of the page about deploying, as far as no cloud is needed."""

import re
import shlex
import subprocess

import pytest
import yaml

from cloud import deploy
from cloud.job_spec import flag_value
from tests.cloud.deployment import exports
from tests.cloud.kubernetes import schemas
from tests.cloud.kubernetes.fake_cluster import FakeCluster
from tests.cloud.kubernetes.serving.controller import Controller
from tests.local_cloud.cloud_fixture import forget_credentials
from tests.local_cloud.local_cloud import LocalCloud
from tests.project import ROOT

PAGE = (ROOT / "docs/deploy.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
PROGRAM = "python -m cloud.deploy "


def commands(target):
    """Arguments of every command for a target, and whether its output goes to a file."""
    lines = "\n".join(BLOCKS).replace("\\\n", " ").splitlines()
    found = [line.removeprefix(PROGRAM).partition(" > ") for line in lines if PROGRAM in line]
    split = [(shlex.split(line), bool(file)) for line, _, file in found]
    return [(argv, to_file) for argv, to_file in split if f"--target={target}" in argv]


@pytest.fixture(name="model", scope="module")
def model_fixture(tmp_path_factory):
    """The page's model, in the page's bucket."""
    with (
        LocalCloud(tmp_path_factory.mktemp("cloud"), "my-bucket") as cloud,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in cloud.environ.items():
            patch.setenv(name, value)
        forget_credentials()
        yield exports.upload("gs://my-bucket/runs/census", 1, 2)
    forget_credentials()


@pytest.mark.parametrize("block", BLOCKS)
def test_the_shell_understands_every_command(block):
    done = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_files_for_a_server_of_this_machine(tmp_path, monkeypatch):
    exports.write(tmp_path / "runs" / "census", 1)
    monkeypatch.chdir(tmp_path)
    for argv, _ in commands("tfserving"):
        assert deploy.main(["deploy", *argv]) == 0
    assert (tmp_path / "serving" / "start.sh").exists()
    assert "\nserving/start.sh\n" in PAGE


@pytest.mark.slow
def test_kubernetes_from_a_command_to_servers_and_back(model, tmp_path, monkeypatch, capfd):
    with FakeCluster("serving") as cluster:
        Controller(cluster)
        cluster.install(tmp_path, monkeypatch)
        seen = []
        for argv, to_file in sorted(commands("kubernetes"), key=lambda x: "undeploy" in x[0]):
            verb = argv[0] if not argv[0].startswith("--") else "deploy"
            if verb == "rollback":
                other = [f"--model={model}", "--version=1", "--target=kubernetes"]
                assert deploy.main(["deploy", "--poll_seconds=0.01", *other]) == 0
            capfd.readouterr()
            assert deploy.main(["deploy", *argv[:1], "--poll_seconds=0.01", *argv[1:]]) == 0
            seen.append(verb)
            if to_file:
                for manifest in yaml.safe_load_all(capfd.readouterr().out):
                    schemas.check(manifest)
                assert cluster.objects == {}
        assert sorted(seen) == [*("deploy", "deploy", "describe", "list", "rollback", "undeploy")]
        assert cluster.objects == {}


def test_what_a_job_of_the_page_deploys_is_accepted_before_it_is_sent():
    [line] = [each for each in "\n".join(BLOCKS).split("\npython") if "--deploy_to=" in each]
    text = line.replace("\\\n", " ").replace("…", "")
    arguments = shlex.split(text.partition(" -- ")[2])
    deploy_to, job_dir = (flag_value(name, arguments) for name in ("deploy_to", "job_dir"))
    assert "--traffic=10" in deploy.check(deploy_to, job_dir, here=True)


def test_every_flag_and_every_default_of_the_page_is_the_programs(capsys):
    told = ""
    for target in ("tfserving", "kubernetes", "vertex"):
        assert deploy.main(["deploy", f"--target={target}", "--help"]) == 0
        told += capsys.readouterr().out
    first_cells = "".join(re.findall(r"^\| (`--.*?) \|", PAGE, re.MULTILINE))
    flags = set(re.findall(r"--([a-z_]+)", first_cells))
    assert len(flags) > 15
    assert [flag for flag in flags if not re.search(rf"--(\[no\])?{flag}\b", told)] == []
    own = set(re.findall(r"^  --(?:\[no\])?([a-z_]+)", told, re.MULTILINE))
    abseils = {"help", "flagfile", "undefok"}
    assert [flag for flag in own - flags - abseils if f"--{flag}" not in PAGE] == []
    assert f"`{deploy.deployment_flags.IMAGE}`" in PAGE
