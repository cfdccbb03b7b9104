"""The image, as far as it can be checked without a container engine."""

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from cloud.job_spec import JobSpec, Role
from cloud.kubernetes import pod
from tests.project import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pins(kind):
    """Version by package of what an image installs."""
    lines = (ROOT / "docker" / f"{kind}.txt").read_text().splitlines()[1:]
    found = [re.fullmatch(r"(\S+)==(\S+) --hash=sha256:[0-9a-f]{64}", line) for line in lines]
    return {each[1].replace("_", "-"): each[2] for each in found}


def test_hadolint_finds_nothing():
    program = pathlib.Path(sys.executable).parent / "hadolint"
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_everything_is_pinned():
    images = re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)
    assert {
        re.fullmatch(r"python:3\.11\.\d+-slim-bookworm", image) is not None for image in images
    } == {True}
    assert set(re.findall(r"--no-install-recommends (\S+)", DOCKERFILE)) == {"tini=0.19.0-*"}
    assert "--require-hashes" in DOCKERFILE


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_what_is_pinned_is_what_the_project_asks_for(kind):
    found = pins(kind)
    for each in map(Requirement, PROJECT["project"]["dependencies"]):
        name = each.name.lower().replace("_", "-")
        assert each.specifier.contains(found[name]), f"{each}: run `make image-packages`"
    assert ("nvidia-cudnn-cu12" in found) == (kind == "gpu")
    assert set(pins("cpu")) < set(pins("gpu"))


def test_the_image_holds_the_project_and_nothing_else():
    copied = re.findall(r"^COPY (\w+) \w+$", DOCKERFILE, re.M)
    packages = {each.partition(".")[0] for each in PROJECT["tool"]["setuptools"]["packages"]}
    assert set(copied) == packages
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignore
    assert {line[1:] for line in ignore if line.startswith("!")} == packages | {"docker/*.txt"}


def test_its_user_is_the_one_that_pods_run_as():
    (user,) = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.M)
    spec = JobSpec("x", ("--config=c", "--job_dir=j"), (Role("chief"),), image="i")
    context = pod.template(spec, spec.roles[0], (), ())["spec"]["securityContext"]
    assert user == (str(context["runAsUser"]), str(context["runAsGroup"]))
    assert user[0] != "0"


def test_its_health_is_asked_by_a_module_that_it_holds():
    (check,) = re.findall(r"^HEALTHCHECK .*CMD (.*)$", DOCKERFILE, re.M)
    assert check == '["python", "-m", "cloud.probe"]'
    assert (ROOT / "cloud/probe.py").exists()


def test_make_says_how_to_build_where_nothing_can():
    done = subprocess.run(
        ["make", "--silent", "image", "DOCKER=false", "KIND=gpu", "IMAGE=r/tfps:2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "false build --build-arg=KIND=gpu --tag=r/tfps:2 ." in done.stdout
