"""What `make slurm` and `make ssh` say before they install anything."""

import os

import pytest

from tests import system_packages

STARTED = {"slurm": "Slurm's daemons", "ssh": "OpenSSH's servers in networks of their own"}


@pytest.mark.parametrize("verb", STARTED)
def test_without_root_it_says_so_in_one_line_and_installs_nothing(monkeypatch, capfd, verb):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(system_packages.subprocess, "run", None)
    assert system_packages.main(verb) == 2
    out, error = capfd.readouterr()
    assert (out, error) == ("", f"error: make {verb} starts {STARTED[verb]}, which needs root\n")


def test_what_cannot_be_installed_is_said_in_one_line(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system_packages, "PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # without apt-get
    assert system_packages.main("slurm") == 2
    out, error = capfd.readouterr()
    assert out == "installing slurmctld slurmd slurm-client munge with apt-get\n"
    assert error.startswith("error: `apt-get -qq update`: ")
    assert error.endswith("; install them yourself\n")
    assert error.count("\n") == 1
