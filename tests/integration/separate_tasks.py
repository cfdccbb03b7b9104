"""Starts the tasks of a cluster one by one, each with its own TF_CONFIG, as a platform does."""

import contextlib
import json
import os
import pathlib
import signal
import time
from collections.abc import Mapping
from typing import Self

from cluster_process import Program

from cloud.local.command import Ports


class SeparateTasks:
    """Some tasks of one cluster; a context manager that ends those that were started.

    Attributes:
        job_dir: The job's directory.
        addresses: By task name, such as "worker 0", on ports that nobody else takes.
        faulted: When the fault of a test began, on the monotonic clock.
    """

    def __init__(
        self, flags: list[str], job_dir: pathlib.Path, workers: int = 1, ps: int = 1
    ) -> None:
        self.job_dir = job_dir
        self._flags = flags
        self._stack = contextlib.ExitStack()
        ports = self._stack.enter_context(Ports(1 + workers + ps))
        names = ["chief 0", *(f"worker {i}" for i in range(workers))]
        names += [f"ps {i}" for i in range(ps)]
        at = (f"127.0.0.1:{port}" for port in ports.numbers)
        self.addresses = dict(zip(names, at, strict=True))
        self.faulted = 0.0

    def start(self, task: str, *flags: str, sees: Mapping[str, str] | None = None) -> Program:
        """Starts a task.

        Args:
            task: Its name.
            flags: More flags.
            sees: Addresses that its TF_CONFIG gives tasks instead of their own.
        """
        job, index = task.split()
        cluster: dict[str, list[str]] = {}
        for name, address in {**self.addresses, **(sees or {})}.items():
            cluster.setdefault(name.split()[0], []).append(address)
        own = {"cluster": cluster, "task": {"type": job, "index": int(index)}}
        environ = {"TF_CONFIG": json.dumps(own)}
        noise = f"--tensorflow_log={self.job_dir.parent / f'{job}-{index}.log'}"
        program = Program(*self._flags, noise, *flags, environ=environ)
        return self._stack.enter_context(program)

    def serve(self, task: str, *flags: str, sees: Mapping[str, str] | None = None) -> Program:
        """Starts a worker or a ps and waits until it serves and has said so."""
        program = self.start(task, *flags, sees=sees)
        program.see(" serves at ")
        announced = self.job_dir / "tasks" / f"{task.replace(' ', '-')}.json"
        deadline = time.monotonic() + 60
        while not announced.exists():
            assert time.monotonic() < deadline, program.text
            time.sleep(0.05)
        return program

    def stop(self, program: Program) -> None:
        """Stops a task as a debugger or a frozen machine does."""
        os.kill(program.pid, signal.SIGSTOP)
        self.fault()

    def fault(self) -> None:
        """Notes that the fault begins."""
        self.faulted = time.monotonic()

    def enter(self, context: contextlib.AbstractContextManager) -> object:
        """Enters a context that is left when the tasks have ended."""
        return self._stack.enter_context(context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
