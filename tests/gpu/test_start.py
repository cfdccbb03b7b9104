"""What `make gpu` installs: nothing where it can train already, and never without a GPU."""

import sys

import pytest

from benchmarks.failure import Failed
from benchmarks.gpu import start
from tests.gpu import nvidia_smi


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """A checkout in which nothing is installed."""
    monkeypatch.setattr(start, "ROOT", tmp_path)
    monkeypatch.setattr(start, "KEPT", tmp_path / "runs/gpu")
    return tmp_path


def program(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def installer(root, monkeypatch, script):
    """A Python whose environments hold one that does what the script says."""
    made = f"""mkdir -p $3/bin
printf '%s\\n' '#!/bin/sh' 'echo "$@" >> {root}/ran' '{script}' > $3/bin/python
chmod +x $3/bin/python"""
    monkeypatch.setattr(sys, "executable", program(root / "python", made))


def test_an_environment_that_sees_a_gpu_is_used(root, capsys):
    python = program(root / ".venv/bin/python", "exit 0")
    assert start.with_cuda() == python
    assert capsys.readouterr().out == f"TensorFlow of {python} sees a GPU\n"


def test_where_none_sees_a_gpu_one_is_installed_with_cuda(root, monkeypatch, capsys):
    program(root / ".venv/bin/python", "exit 1")
    installer(root, monkeypatch, "exit 0")
    own = str(root / "runs/gpu/tensorflow/bin/python")
    assert start.with_cuda() == own
    installed, asked = (root / "ran").read_text().split("\n", 1)
    assert "-m pip install" in installed
    assert installed.endswith(f"-e {root}[benchmarks] tensorflow[and-cuda]>=2.21,<2.22")
    assert "list_physical_devices" in asked
    assert capsys.readouterr().out.startswith("no TensorFlow here sees a GPU: tensorflow[and-cuda]")
    start.with_cuda()  # it is there now
    assert (root / "ran").read_text().count("pip install") == 1


def test_an_environment_with_cuda_that_sees_no_gpu_is_told(root, monkeypatch):
    installer(root, monkeypatch, "case $2 in pip) exit 0;; esac; exit 1")
    with pytest.raises(Failed, match="sees no GPU though CUDA is installed there"):
        start.with_cuda()


def test_packages_that_cannot_be_installed_are_told(root, monkeypatch):
    installer(root, monkeypatch, "exit 1")
    with pytest.raises(Failed, match=r"torch>=.*, numpy cannot be installed in .*/runs/gpu/torch"):
        start.with_torch()


@pytest.mark.parametrize("version", [(3, 10, 14), (3, 14, 0)])
def test_another_python_is_refused(monkeypatch, version):
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(Failed, match=f"is Python 3.{version[1]}, and tfps needs 3.11 to 3.13"):
        start.refuse()


def test_the_gpus_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", nvidia_smi.install(tmp_path))
    monkeypatch.setenv(nvidia_smi.MARK, "2")
    start.refuse()
    assert capsys.readouterr().out == "2 GPUs: NVIDIA H100 80GB HBM3, NVIDIA H100 80GB HBM3\n"
