"""Runs the tasks of a local cluster from the first start to the last end."""

import dataclasses
import os
import signal
import time
from collections.abc import Sequence
from typing import Protocol

from cloud.local.command import Command
from cloud.local.faults import Fault, FaultInjector
from cloud.local.process import Events, Process, TaskStarter, how_ended
from cloud.local.task_output import TaskOutput
from tfps.errors import EXIT_RESIZED, EXIT_RUN, EXIT_USER

NAME = "launcher"  # whose lines the supervisor's own are
_DRAIN_READS = 32  # of 64 KiB: more than a pipe holds
_MOST_BACKOFF = 8  # times the first wait
_TAIL_LINES = 10


@dataclasses.dataclass(frozen=True)
class Limits:
    grace_seconds: float = 30.0
    max_restarts: int = 3
    backoff_seconds: float = 1.0  # before the first restart; doubles with each further one
    steady_seconds: float = 600.0  # that a task runs, after which its restarts count from 0 again
    end_seconds: float = 5.0
    timeout_seconds: float | None = None  # that are left for the whole run


class Link(Protocol):
    """What connects the launchers of a job whose tasks are on several machines."""

    has_chief: bool  # whether the chief is one of this launcher's tasks

    def begin(self, events: Events, supervisor: "Supervisor") -> None:
        """Begins to watch the others, and tells the supervisor of the chief's end, or theirs."""

    def tell_end(self, code: int) -> None:
        """Tells the others with which exit code this launcher ends."""


class Supervisor:
    """Starts the tasks, keeps them alive, and ends everything when the chief ends by itself."""

    def __init__(
        self,
        commands: Sequence[Command],
        limits: Limits,
        relay: TaskOutput,
        starter: TaskStarter,
        faults: Sequence[Fault] = (),
        others: int = 0,
        link: Link | None = None,
    ):
        self._commands = commands
        self._limits = limits
        self._relay = relay
        self._starter = starter
        self._faults = FaultInjector(faults, self.say)
        self._others = others
        self._link = link
        self._has_chief = link is None or link.has_chief
        self._running: dict[str, Process] = {}
        self._restarts = dict.fromkeys((command.name for command in commands), 0)
        self._workers = [command.name for command in commands if command.job == "worker"]
        self._lost: set[str] = set()  # workers that are not restarted any more
        self._done: list[Command] = []  # servers that ended by themselves
        self._is_ending = False
        self._code: int | None = None  # the run's exit code, where it is not the chief's own
        self._chief_code: int | None = None  # of its last end

    def run(self) -> int:
        """Runs until nothing is left; returns the chief's exit code.

        That is 128 + n when it died by signal n too often; `EXIT_USER` or `EXIT_RUN` when the
        launcher had to end the run.
        """
        with Events(_stop_signals(), self._on_signal) as self._events:
            try:
                for command in self._commands:
                    self._start(command)
                self._faults.begin(self._events, self._running)
                if self._link:
                    self._link.begin(self._events, self)
                if self._limits.timeout_seconds is not None:
                    self._events.after(self._limits.timeout_seconds, self._on_timeout)
                while self._running or not self._is_ending:
                    self._events.wait()
                    if self._relay.is_broken and not self._is_ending:
                        self._end_chief(signal.SIGTERM, self._limits.grace_seconds)
            finally:
                for process in self._running.values():
                    process.close()
        self._faults.report()
        code = self._chief_code if self._code is None else self._code
        assert code is not None
        if self._link:
            self._link.tell_end(code)
        return code

    def chief_ended(self, code: int) -> None:
        """Ends the tasks of this machine after the chief, which was on another."""
        if not self._is_ending:
            self._chief_code = code
            self._end_servers()

    def fail(self, code: int, why: str) -> None:
        """Ends the run, since it cannot go on."""
        if not self._is_ending:
            self.say(f"{why}: ending the run")
            self._end_run(code, self._limits.grace_seconds)

    def _start(self, command: Command) -> None:
        process = Process(command, self._starter)
        self._running[command.name] = process
        self._events.watch(process.output, lambda: self._relay_output(process, reads=1))
        self._events.watch(process.end, lambda: self._look_for_end(process))

    def _relay_output(self, process: Process, reads: int) -> None:
        """Relays what a process has written, in at most so many reads."""
        for _ in range(reads):
            try:
                data = os.read(process.output, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._events.forget(process.output)
                return
            self._relay.feed(process.command.name, data)
            if process.command.job == "chief":
                self._faults.read(data)

    def _on_signal(self, number: int) -> None:
        came = signal.Signals(number)
        if self._is_ending:
            if came == signal.SIGHUP:  # which a terminal that is closed sends twice
                return
            self.say(f"{came.name} again: killing every task")
            for process in self._running.values():
                process.kill()
        else:
            grace = self._limits.grace_seconds
            # A chief saves at SIGINT and SIGTERM; SIGHUP would kill it.
            sent = signal.SIGTERM if came == signal.SIGHUP else came
            how = "passed on" if sent == came else f"passed on as {sent.name}"
            who = "the chief, which has" if self._has_chief else "this machine's tasks, which have"
            self.say(f"{came.name}: {how} to {who} {grace:g} s; again kills at once")
            self._end_chief(sent, grace)

    def _look_for_end(self, process: Process) -> None:
        code = process.poll()
        if code is not None:
            self._events.forget(process.end)
            self._on_end(process, code)

    def _on_timeout(self) -> None:
        if not self._is_ending:
            self.say("the time of the run (--timeout_seconds) is over: ending it")
            self._end_run(EXIT_RUN, self._limits.grace_seconds)

    def _on_end(self, process: Process, code: int) -> None:
        """Drains the output of an ended process and acts on its end."""
        command = process.command
        self._relay_output(process, _DRAIN_READS)
        self._events.forget(process.output)
        self._relay.finish(command.name)
        del self._running[command.name]
        process.close()
        if command.job == "chief":
            self._on_chief_end(process, code)
        elif self._is_ending:
            if code and "chief" in self._running:
                self.say(f"{command.name} {how_ended(code)} while the chief is ending")
        elif code == 0:
            self.say(f"{command.name} ended by itself: the chief told it to, or is gone")
            self._on_done(command)
        elif command.job == "evaluator":
            self._on_evaluator_loss(process, code)
        elif code == EXIT_USER:
            self.say(f"{command.name} cannot run as it was started (see its message): ending all")
            self._end_run(EXIT_USER, self._limits.end_seconds)
        elif self._restart_later(process, how_ended(code)):
            self._show_log(process, code)
        elif command.job == "worker":
            self._on_worker_given_up(process, code)
        else:
            self.say(f"{command.name} {how_ended(code)} after its last restart: ending the run")
            self._show_log(process, code)
            self._end_run(EXIT_RUN, self._limits.end_seconds)

    def _on_chief_end(self, process: Process, code: int) -> None:
        """Restarts a chief that was killed, say for want of memory; any other end is the run's."""
        self._chief_code = code if code >= 0 else 128 - code
        if code < 0 and not self._is_ending and self._restart_later(process, how_ended(code)):
            return
        if code and code != EXIT_RESIZED:
            self.say(f"chief {how_ended(code)}")
            if code != EXIT_USER and not self._is_ending:
                self._show_log(process, code)
        self._end_servers()

    def _end_servers(self, grace_seconds: float | None = None) -> None:
        """Ends all tasks; with a grace in which a chief elsewhere may need them."""
        self._is_ending = True
        for server in self._running.values():
            server.send(signal.SIGTERM)
        wait = self._limits.end_seconds if grace_seconds is None else grace_seconds
        self._events.after(wait, self._kill_all)

    def _restart_later(self, process: Process, ended: str) -> bool:
        """Restarts a task after a while, unless that was done too often; whether it will."""
        command, limit = process.command, self._limits.max_restarts
        if time.monotonic() - process.began > self._limits.steady_seconds:
            self._restarts[command.name] = 0
        restarts = self._restarts[command.name]
        if restarts >= limit:
            return False
        wait = self._limits.backoff_seconds * min(2**restarts, _MOST_BACKOFF)
        self._restarts[command.name] += 1
        self.say(f"{command.name} {ended}; restart {restarts + 1} of {limit} in {wait:g} s")
        self._events.after(wait, lambda: self._restart(command))
        return True

    def _restart(self, command: Command) -> None:
        if self._is_ending:
            return
        self._start(command)
        if command.job == "chief":
            for server in self._done:
                self._start(server)
            self._done.clear()

    def _on_done(self, server: Command) -> None:
        """A server that took the death of its chief for the end is there for the next chief."""
        if not self._has_chief:  # if the chief is at its end, that is told before
            self._events.after(self._limits.end_seconds, lambda: self._restart(server))
        elif self._restarts["chief"] and "chief" in self._running:
            self._start(server)
        else:
            self._done.append(server)

    def _on_evaluator_loss(self, process: Process, code: int) -> None:
        """Restarts it where that can help; the run continues in any case."""
        if code == EXIT_USER or not self._restart_later(process, how_ended(code)):
            name = process.command.name
            self.say(f"{name} {how_ended(code)} and stays away; the run continues without it")
        self._show_log(process, code)

    def _on_worker_given_up(self, process: Process, code: int) -> None:
        name = process.command.name
        self._lost.add(name)
        self.say(
            f"{name} {how_ended(code)} after {self._limits.max_restarts} restarts and stays away; "
            f"workers left: {self._workers_left()}"
        )
        self._show_log(process, code)
        if not self._workers_left():
            self.say("no worker is left: ending the run")
            self._end_run(EXIT_RUN, self._limits.grace_seconds)

    def _workers_left(self) -> int:
        return len(self._workers) + self._others - len(self._lost)

    def _end_run(self, code: int, grace_seconds: float) -> None:
        """Ends the run, whatever the chief's exit code, because the launcher must."""
        self._code = code
        self._end_chief(signal.SIGTERM, grace_seconds)

    def _end_chief(self, number: signal.Signals, grace_seconds: float) -> None:
        """Signals the chief, then SIGTERM, then SIGKILL; its end ends everything else."""
        self._is_ending = True
        chief = self._running.get("chief")
        if chief is None:  # between its death and its restart
            self._code = 128 + number if self._code is None else self._code
            self._end_servers(None if self._has_chief else grace_seconds)
            return

        def terminate() -> None:
            if "chief" in self._running:
                self.say(f"the chief runs on after {grace_seconds:g} s: SIGTERM")
                chief.send(signal.SIGTERM)
                self._events.after(self._limits.end_seconds, self._kill_all)

        chief.send(number)
        self._events.after(grace_seconds, terminate)

    def _kill_all(self) -> None:
        for process in self._running.values():
            self.say(f"{process.command.name} runs on after SIGTERM: SIGKILL")
            process.kill()

    def _show_log(self, process: Process, code: int) -> None:
        """Prints where the log of a task is, and the last lines that this process wrote to it.

        A task that ended with `EXIT_RUN` has told the cause itself, and one that was killed from
        outside wrote nothing about it: their logs are only named.
        """
        command = process.command
        if not command.log.is_file():
            return
        is_told = code in (EXIT_RUN, -signal.SIGKILL, -signal.SIGTERM)
        lines = [] if is_told else process.log_tail(_TAIL_LINES)
        self.say(f"{command.name}'s log is {command.log}" + (", which ends:" if lines else ""))
        for text in lines:
            self._relay.line(command.name, f"| {text}")

    def say(self, text: str) -> None:
        self._relay.line(NAME, text)


def _stop_signals() -> list[signal.Signals]:
    """The signals that end the run; a hang-up does not under nohup."""
    hang_up = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGINT, signal.SIGTERM, *hang_up]
