"""What `make slurm` says before it installs anything."""

import os

from tests.real_slurm import packages


def test_without_root_it_says_so_in_one_line_and_installs_nothing(monkeypatch, capfd):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(packages.subprocess, "run", None)
    assert packages.main() == 2
    out, error = capfd.readouterr()
    assert (out, error) == ("", "error: make slurm starts Slurm's daemons, which needs root\n")


def test_what_cannot_be_installed_is_said_in_one_line(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # without apt-get
    assert packages.main() == 2
    out, error = capfd.readouterr()
    assert out == "installing slurmctld slurmd slurm-client munge with apt-get\n"
    assert error.startswith("error: `apt-get -qq update`: ")
    assert error.endswith("; install Slurm yourself\n")
    assert error.count("\n") == 1
