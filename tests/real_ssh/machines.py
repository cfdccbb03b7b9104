"""Machines with a real sshd each: networks of their own, or addresses of the loopback."""

import contextlib
import os
import pathlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Self

import psutil

from benchmarks import systems
from tests.project import ROOT
from tests.system_packages import PATH

PATIENCE = 240.0  # seconds that any one event may take on a busy machine
_BRIDGE = "tfps-ssh"
_SERVER = """
HostKey {directory}/{key}
AuthorizedKeysFile {directory}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv HOME={directory}/home PATH={path} PYTHONPATH={root} TFPS_MACHINE={name}
"""
_HOST = """
Host {name}
  HostName {address}
  Port {port}
"""
_EVERY_HOST = """
Host *
  User root
  IdentityFile {directory}/user
  IdentitiesOnly yes
  UserKnownHostsFile {directory}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""


def _try(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=False)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


class Machine:
    """One of them; what ssh starts there has `TFPS_MACHINE` in its environment."""

    def __init__(self, directory: pathlib.Path, number: int, is_network: bool) -> None:
        self.name = f"m{number}"
        self.address = f"10.231.77.{number + 1}" if is_network else f"127.0.3.{number}"
        self.port = 22 if is_network else 2250 + number
        self.directory = directory
        self._network = f"{_BRIDGE}-{number}" if is_network else ""
        self._link = f"tfps-m{number}"
        self._server: subprocess.Popen[bytes] | None = None

    def start(self, path: str = "") -> None:
        """Makes its network if need be, and starts its sshd; `path` is its PATH."""
        if self._network:
            self._make_network()
        key, config = f"{self.name}.key", self.directory / f"{self.name}.server"
        if not (self.directory / key).exists():
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.directory / key))
        path = path or f"{ROOT}/.venv/bin:{os.environ['PATH']}"
        text = _SERVER.format(
            directory=self.directory, key=key, path=path, root=ROOT, name=self.name
        )
        config.write_text(f"ListenAddress {self.address}:{self.port}\n{text}")
        sshd = shutil.which("sshd", path=PATH)
        assert sshd
        within = ["ip", "netns", "exec", self._network] if self._network else []
        with (self.directory / f"{self.name}.log").open("ab") as log:
            self._server = subprocess.Popen(
                [*within, sshd, "-D", "-e", "-f", str(config)], stderr=log
            )

    @property
    def known_host(self) -> str:
        """Its line in known_hosts."""
        key = (self.directory / f"{self.name}.key.pub").read_text().split()
        at = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        return f"{at} {key[0]} {key[1]}\n"

    def processes(self) -> list[psutil.Process]:
        """What was started there."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("TFPS_MACHINE") == self.name:
                    found += [process, *process.children(recursive=True)]  # forks have no environ
        return list(dict.fromkeys(found))

    def tasks(self) -> dict[str, psutil.Process]:
        """The tasks that run there, by name such as "worker-1"."""
        found = {}
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if task := systems.task_of(process):
                    found[task] = process
        return found

    def lose(self) -> None:
        """Takes its power away, and its cable."""
        if self._network:
            _try("ip", "link", "set", self._link, "down")
        if self._server:
            self._server.kill()
            self._server.wait()
        while alive := [x for x in self.processes() if x.status() != psutil.STATUS_ZOMBIE]:
            for process in alive:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(alive, PATIENCE)

    def close(self) -> None:
        self.lose()
        if self._network:
            _try("ip", "link", "del", self._link)  # by itself it would go some time later
            _try("ip", "netns", "del", self._network)

    def _make_network(self) -> None:
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
        if self._network in names.split():
            _run("ip", "link", "set", self._link, "up")
            return
        _run("ip", "netns", "add", self._network)
        _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", f"{self._link}-in")
        _run("ip", "link", "set", f"{self._link}-in", "netns", self._network)
        _run("ip", "link", "set", self._link, "master", _BRIDGE)
        _run("ip", "link", "set", self._link, "up")
        for command in (
            f"addr add {self.address}/24 dev {self._link}-in",
            f"link set {self._link}-in up",
            "link set lo up",
        ):
            _run("ip", "-n", self._network, *command.split())


class Machines:
    """Three machines, and the client that reaches them.

    Attributes:
        each: The machines.
        environ: With which `ssh` is a client that knows them.
    """

    def __init__(self, directory: pathlib.Path, is_network: bool) -> None:
        self.directory = directory
        (directory / "home").mkdir()
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # which Debian's service makes as it starts
        self._is_network = is_network
        self.each = [Machine(directory, number, is_network) for number in (1, 2, 3)]
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / "user"))
        hosts = [_HOST.format(name=x.name, address=x.address, port=x.port) for x in self.each]
        every = _EVERY_HOST.format(directory=directory)
        (directory / "config").write_text("".join([*hosts, every]))
        programs = directory / "bin"
        programs.mkdir()
        client = programs / "ssh"
        own = shlex.join([shutil.which("ssh") or "ssh", "-F", str(directory / "config")])
        client.write_text(f'#!/bin/sh\nexec {own} "$@"\n')
        client.chmod(0o755)
        self.environ = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def __enter__(self) -> Self:
        if self._is_network:
            _run("ip", "link", "add", _BRIDGE, "type", "bridge")
            _run("ip", "addr", "add", "10.231.77.1/24", "dev", _BRIDGE)
            _run("ip", "link", "set", _BRIDGE, "up")
        try:
            for machine in self.each:
                machine.start()
            self.know(self.each)
            self.await_servers()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the machines, and takes their networks away."""
        for machine in self.each:
            machine.close()
        if self._is_network:
            _try("ip", "link", "del", _BRIDGE)

    def know(self, machines: Sequence[Machine]) -> None:
        """Has the client know the keys of these alone."""
        text = "".join(machine.known_host for machine in machines)
        (self.directory / "known_hosts").write_text(text)

    def await_servers(self) -> None:
        """Waits until all answer."""
        until = time.monotonic() + PATIENCE
        for machine in self.each:
            while subprocess.run(
                ["ssh", machine.name, "true"],
                env=os.environ | self.environ,
                capture_output=True,
                check=False,
            ).returncode:
                assert time.monotonic() < until, (
                    self.directory / f"{machine.name}.log"
                ).read_text()
                time.sleep(0.2)

    def end_jobs(self) -> None:
        """Kills what was started anywhere, the servers left out."""
        for machine in self.each:
            for process in machine.processes():
                with contextlib.suppress(psutil.Error):
                    process.kill()
