"""Starts a real Slurm whose nodes are all this machine."""

import contextlib
import os
import pathlib
import re
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Self

import psutil

NODES = ("tfps-n1", "tfps-n2", "tfps-n3")
_HOSTS = pathlib.Path("/etc/hosts")
_HOSTS_MARK = "# of the tests of tfps, while they run"
_PATIENCE = 180.0  # for the daemons, on a busy machine
_CONFIG = """\
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
AuthType=auth/munge
# A job that is queued again waits until what lets its tasks in has expired: by default 2 minutes.
AuthInfo=socket={directory}/munge.socket,cred_expire=10
SlurmUser=root
SlurmdUser=root
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
MpiDefault=none
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL PriorityTier=2 MaxTime=INFINITE State=UP
PartitionName=shared Nodes=ALL OverSubscribe=FORCE:2 MaxTime=INFINITE State=UP
"""


class RealSlurm:
    """Slurm's controller and a daemon for each of `NODES`, each a process of this one.

    `main` is the partition of jobs that say none; jobs of `urgent` take their nodes; in `shared`
    two jobs have the same nodes. A context manager: when it is left every job has been ended, and
    every daemon.

    Attributes:
        environ: Variables with which Slurm's commands reach it.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        """Starts nothing yet.

        Args:
            directory: For configuration, state and logs.
        """
        self._directory = directory
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._config = directory / "slurm.conf"
        self.environ = {"SLURM_CONF": str(self._config)}

    def __enter__(self) -> Self:
        (self._directory / "state").mkdir()
        with contextlib.ExitStack() as sockets:
            ports = []
            for _ in range(1 + len(NODES)):
                bound = sockets.enter_context(socket.socket())
                bound.bind(("127.0.0.1", 0))
                ports.append(bound.getsockname()[1])
        nodes = "\n".join(
            f"NodeName={node} NodeHostName=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4 "
            "RealMemory=8000"
            for node, port in zip(NODES, ports[1:], strict=True)
        )
        self._config.write_text(
            _CONFIG.format(directory=self._directory, controller_port=ports[0], nodes=nodes)
        )
        self._name_hosts([f"127.0.0.{2 + i} {node}" for i, node in enumerate(NODES)])
        try:
            self._start_daemons()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def run(self, *command: str) -> str:
        """Runs one of Slurm's commands; returns what it prints."""
        return subprocess.run(
            command,
            env=os.environ | self.environ,
            check=True,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        ).stdout

    def field(self, job: str, name: str) -> str:
        """A field of `scontrol show job`."""
        match = re.search(rf"\b{name}=(\S*)", self.run("scontrol", "show", "job", job))
        assert match is not None, name
        return match[1]

    def processes(self) -> list[psutil.Process]:
        """Those of Slurm's, and of its jobs, that run on this machine."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == str(self._config):
                    found.append(process)
        return [each for each in found if each.pid != os.getpid()]

    def _start_daemons(self) -> None:
        key = self._directory / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = {"key": "key", "pid": "pid", "seed": "seed", "log": "log"}
        own = [f"--{name}-file={self._directory}/munge.{end}" for name, end in files.items()]
        # By force: it warns of directories that others may write to, of which /tmp is one.
        self._start("munged", "--foreground", "--force", f"--socket={self._munge}", *own)
        self._await(self._munge.exists)
        self._start("slurmctld", "-D")
        for node in NODES:
            self._start("slurmd", "-D", "-N", node)
        self._await(lambda: self._nodes_idle() == len(NODES))

    @property
    def _munge(self) -> pathlib.Path:
        return self._directory / "munge.socket"

    def _start(self, *command: str) -> None:
        with (self._directory / f"{command[0]}.log").open("ab") as log:
            environ = os.environ | self.environ
            environ["PATH"] = f"{environ['PATH']}:/usr/sbin:/sbin"
            self._daemons.append(
                subprocess.Popen(
                    command, env=environ, stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )
            )

    def _nodes_idle(self) -> int:
        with contextlib.suppress(subprocess.CalledProcessError):
            return (
                self.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%t")
                .split()
                .count("idle")
            )
        return 0

    def _await(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE
        while not is_so():
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            assert not ended, f"{ended}; see {self._directory}/*.log"
            assert time.monotonic() < until, f"see {self._directory}/*.log"
            time.sleep(0.1)

    def _name_hosts(self, own: Sequence[str]) -> None:
        """Has /etc/hosts say these lines of the tests, and none of an earlier run's."""
        kept = [x for x in _HOSTS.read_text().splitlines() if not x.endswith(_HOSTS_MARK)]
        _HOSTS.write_text("\n".join([*kept, *(f"{each} {_HOSTS_MARK}" for each in own), ""]))

    def _end(self) -> None:
        try:
            with contextlib.suppress(subprocess.SubprocessError):  # a controller that never was up
                self.end_jobs()
        finally:
            for daemon in reversed(self._daemons):  # MUNGE last: the others need it to end
                daemon.terminate()
                try:
                    daemon.wait(_PATIENCE)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            for process in self.processes():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            self._name_hosts([])

    def end_jobs(self) -> None:
        """Cancels all jobs and waits until no task of theirs runs."""
        self.run("scancel", "--user=root")
        self._await(lambda: not self.run("squeue", "--noheader"))
        self._await(lambda: self._nodes_idle() == len(NODES))
