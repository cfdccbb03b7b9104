"""The machines of `--hosts`."""

import pytest

from cloud.ssh import hosts
from cloud.ssh.hosts import Host
from tests.cloud.ssh import stand_in
from tfps.errors import UserError


@pytest.fixture(autouse=True)
def client(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    stand_in.install(tmp_path)


def test_the_address_is_the_second_word_or_what_ssh_connects_to(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# two machines\ngpu1\n\nme@gpu2  10.0.0.2  # by the inner network\n")
    expected = [Host("gpu1", "gpu1.example"), Host("me@gpu2", "10.0.0.2")]
    assert hosts.read(str(file)) == expected
    assert hosts.read("gpu1, me@gpu2 10.0.0.2,") == expected


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("", "names no machine"),
        ("-oProxyCommand=x", "'-oProxyCommand=x' is no machine; write HOST, or HOST ADDRESS"),
        ("gpu1 -x", "is no machine"),
        ("gpu1 10.0.0.1 10.0.0.2", "is no machine"),
        ("gpu1,gpu1", "two machines have the name gpu1"),
        ("a 10.0.0.1,b 10.0.0.1", "two machines have the address 10.0.0.1; write each once"),
        ("/nowhere/hosts", "--hosts=/nowhere/hosts: there is no such file"),
    ],
)
def test_what_is_no_list_of_machines_is_refused(named, problem):
    with pytest.raises(UserError, match=problem):
        hosts.read(named)


def test_a_machine_without_a_client_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="ssh is not on this machine; install OpenSSH's client"):
        hosts.read("gpu1")
