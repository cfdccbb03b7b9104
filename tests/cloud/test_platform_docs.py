"""Every command of the pages about Kubernetes and Slurm, as far as no cluster is needed."""

import re
import shlex
import subprocess

import pytest
import yaml

from cloud import submit
from tests.cloud.kubernetes import schemas
from tests.cloud.kubernetes.fake_cluster import FakeCluster
from tests.cloud.slurm import stand_in
from tests.project import ROOT

PAGES = ("kubernetes", "slurm")
PROGRAM = "python -m cloud.submit "


def blocks(page):
    return re.findall(r"```sh\n(.*?)```", (ROOT / f"docs/{page}.md").read_text(), re.DOTALL)


def lines(page):
    return "\n".join(blocks(page)).replace("\\\n", " ").splitlines()


def commands(page):
    """Arguments of every command of the program, in the page's order."""
    found = [line.removeprefix(PROGRAM) for line in lines(page) if line.startswith(PROGRAM)]
    return [shlex.split(line.partition(" > ")[0]) for line in found]


@pytest.mark.parametrize("page", PAGES)
def test_the_shell_understands_every_command(page):
    for block in blocks(page):
        done = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
        assert (done.returncode, done.stderr) == (0, ""), block


@pytest.mark.parametrize("page", PAGES)
def test_other_commands_of_the_project_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    for line in lines(page):
        if match := re.match(r"make (\S+)", line):
            assert re.search(rf"^{match[1]}:", makefile, re.M), line
        if match := re.match(r"python -m (trainer\.\S+) (.*)", line):
            source = (ROOT / f"{match[1].replace('.', '/')}.py").read_text()
            for flag in re.findall(r"--([a-z_]+)", match[2]):
                assert f'"{flag}"' in source, line


def test_kubernetes_from_an_image_to_a_job_that_has_ended(tmp_path, monkeypatch, capfd):
    with FakeCluster("training") as cluster:
        cluster.install(tmp_path, monkeypatch)
        ended = {"conditions": [{"type": "Completed", "status": "True"}]}
        cluster.on_read = lambda job: job.update(status=ended)
        seen = set()
        for argv in commands("kubernetes"):
            seen.add(argv[0] if not argv[0].startswith("--") else "submit")
            assert submit.main(["submit", *argv[:1], "--poll_seconds=0.02", *argv[1:]]) == 0
            out = capfd.readouterr().out
            if "--wait" in argv:
                assert out.startswith("submitted criteo\n")
                assert "[submit] jobset criteo: Completed" in out
            elif argv[0].startswith("--"):
                manifests = list(yaml.safe_load_all(out))
                assert [each["kind"] for each in manifests] == ["NetworkPolicy", "JobSet"]
                for manifest in manifests:
                    schemas.check(manifest)
                assert cluster.requests == []
            else:
                assert "criteo" in out
        assert seen == {"submit", "follow", "cancel", "list", "describe"}
        assert cluster.objects == {}


def test_slurm_from_a_command_to_a_number(tmp_path, monkeypatch, capfd):
    stand_in.install(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    seen = set()
    for argv in commands("slurm"):
        seen.add(argv[0] if not argv[0].startswith("--") else "submit")
        assert submit.main(["submit", *argv[:1], "--poll_seconds=0.02", *argv[1:]]) == 0
        out = capfd.readouterr().out
        if "--dry_run" in argv:
            assert "#SBATCH --gpus-per-node=a100:2\n" in out
            assert not (tmp_path / "submitted").exists()
            (tmp_path / "job.sh").write_text(out)
        elif argv[0].startswith("--"):
            assert out.startswith("submitted 4711\n")
            assert (tmp_path / "submitted").read_text().startswith("#!/bin/bash\n#SBATCH")
            (tmp_path / "submitted").unlink()
    assert seen == {"submit", "follow", "cancel", "list", "describe"}
    (sbatch,) = [line for line in lines("slurm") if line.startswith("sbatch")]
    assert sbatch == "sbatch job.sh"
