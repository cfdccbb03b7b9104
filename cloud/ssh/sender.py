"""Starts jobs on machines, and asks there how they are.

Each machine keeps its part of a job in ~/.tfps/JOB/RANK: the command, its output and its exit code.
Anyone who reaches the machines can follow the job or end it.
"""

import concurrent.futures
import contextlib
import datetime
import re
import secrets
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from cloud.ssh import hosts
from cloud.ssh.hosts import Host, UnreachableError
from cloud.target import JobStatus, Request
from tfps.errors import EXIT_USER, RunError, UserError

T = TypeVar("T")
_MOST_BYTES = 4 << 20  # of a log, at once
_JOB = r"[a-z0-9-]+"
_LINE = re.compile(r"\[((?:chief|worker|ps)(?: \d+)?)\] ")
_RUNNING, _GONE, _ENDED, _UNKNOWN = "running", "gone", "ended", "unknown"
# `state`, for a directory of ~/.tfps: how what was started there is.
_STATE = f"""
state() {{
  if [ ! -d "$1" ]; then echo {_UNKNOWN}
  elif [ -f "$1/exit_code" ]; then echo {_ENDED} "$(cat "$1/exit_code")"
  elif grep -qs .tfps/ "/proc/$(cat "$1/running")/cmdline"; then echo {_RUNNING}
  else echo {_GONE}
  fi
}}
cd "$HOME/.tfps" || exit {EXIT_USER}
"""
_RUN = """\
#!/bin/bash
# Starts this machine's tasks of {job}, also after the machine was started again.
own=$(cd "$(dirname "$0")" && pwd)
if [ "$1" != apart ]; then # it outlives whoever starts it
  nohup setsid bash "$own/run" apart < /dev/null > /dev/null 2>&1 &
  exit
fi
exec >> "$own/log" 2>&1
echo $$ > "$own/running"
rm -f "$own/exit_code"
end() {{
  echo "$1" > "$own/exit_code.part"
  mv "$own/exit_code.part" "$own/exit_code"
  exit "$1"
}}
cd {directory} || end 2
{lines}
{command} &
echo $! > "$own/launcher"
wait $!
end $?
"""
_START = """
umask 077
own="$HOME/.tfps/{place}"
mkdir -p "$own" && printf %s {run} > "$own/run" || exit 1
bash "$own/run" || exit 1
tries=0
until [ -s "$own/running" ]; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || {{ echo "bash has not started in 10 s" >&2; exit 1; }}
  sleep 0.1
done
"""
_LIST = """
for each in */0; do
  [ -d "$each" ] && echo "${each%/0} $(date -u -r "$each/run" +%FT%TZ) $(state "$each")"
done
true
"""


class SshSender:
    """Machines that ssh reaches; the first has a job's chief."""

    def __init__(self, machines: Sequence[Host]):
        self._machines = machines
        self._read = [0] * len(machines)  # bytes of the logs
        self._told: dict[int, str] = {}  # what was said last of machines that do not run

    def send(self, requests: Sequence[Request]) -> str:
        """Starts a job on all machines, or on none; returns its name."""
        name = str(_fields(requests[0])["job"])
        now = datetime.datetime.now(datetime.UTC)
        job = f"{name}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        try:
            # The first is the last: what it says of machines that do not come is then true.
            for rank in reversed(range(len(self._machines))):
                hosts.run(self._machines[rank], _start(job, rank, _fields(requests[rank])))
        except BaseException:
            with contextlib.suppress(RunError):
                self.cancel(job)
            raise
        return job

    def status(self, job: str) -> JobStatus:
        """What the first machine says of a job."""
        _check(job)
        title = f"{job} on {len(self._machines)} machines"
        first = self._machines[0]
        try:
            said = hosts.run(first, f"{_STATE}state {job}/0").decode().split()
        except UnreachableError as error:
            return JobStatus(job, title, "UNREACHABLE", "", message=str(error))
        if said[0] == _UNKNOWN:
            raise UserError(f"{first.name} has no job {job}; see the verb list")
        if said[0] == _RUNNING:
            return JobStatus(job, title, "RUNNING", "")
        if said[0] == _GONE:
            how = f"it was not ended, but does not run; {_again(first, job, 0)}"
            return JobStatus(job, title, "GONE", "", has_ended=True, message=how)
        code = said[1]
        state = "FAILED" if int(code) else "SUCCEEDED"
        how = f"exit code {code}; see ~/.tfps/{job}/0/log on {first.name}"
        return JobStatus(job, title, state, "", True, not int(code), how)

    def new_lines(self, job: str) -> Iterable[tuple[str, str]]:
        _check(job)

        def read(rank: int) -> tuple[str, bytes]:
            own = f"{job}/{rank}"
            script = (
                f"{_STATE}state {own}; "
                f"tail -c +{self._read[rank] + 1} {own}/log | head -c {_MOST_BYTES}"
            )
            try:
                state, _, log = hosts.run(self._machines[rank], script).partition(b"\n")
            except RunError as error:
                return str(error), b""
            return state.decode(), log

        for rank, (state, log) in enumerate(_at_all(self._machines, read)):
            host = self._machines[rank]
            whole = log[: log.rfind(b"\n") + 1]
            self._read[rank] += len(whole)
            for line in whole.decode("utf-8", "backslashreplace").splitlines():
                match = _LINE.match(line)
                yield (match[1], line[match.end() :]) if match else (host.name, line)
            if said := self._news(job, rank, state):
                yield host.name, said

    def cancel(self, job: str) -> None:
        """Has the first machine's launcher save and end all, or each end its own."""
        _check(job)
        problems = [self._end(job, 0)]
        if problems[0]:
            problems += _at_all(self._machines, lambda rank: self._end(job, rank))[1:]
            if all(problems):
                raise RunError(f"{job} cannot be ended: {'; '.join(filter(None, problems))}")

    def list(self) -> Sequence[JobStatus]:
        """The jobs on the first machine."""
        printed = hosts.run(self._machines[0], f"mkdir -p ~/.tfps\n{_STATE}{_LIST}").decode()
        found = [
            JobStatus(name, name, " ".join(state).upper(), created)
            for name, created, *state in map(str.split, printed.splitlines())
        ]
        return sorted(found, key=lambda each: each.created, reverse=True)

    def describe(self, job: str) -> Request:
        """How each machine is, and what it runs."""
        _check(job)

        def ask(rank: int) -> dict[str, Any]:
            script = f"{_STATE}state {job}/{rank}; cat {job}/{rank}/run"
            try:
                said = hosts.run(self._machines[rank], script).decode("utf-8", "backslashreplace")
            except RunError as error:
                said = f"{error}\n"
            state, _, run = said.partition("\n")
            return {"host": self._machines[rank].name, "state": state, "run": run}

        return {"job": job, "machines": _at_all(self._machines, ask)}

    def _news(self, job: str, rank: int, state: str) -> str:
        """What is to be said of a machine whose launcher does not run, once."""
        before = self._told.get(rank, _RUNNING)
        self._told[rank] = state
        if state == before or state.startswith(_ENDED):
            return ""
        if state == _RUNNING:
            return "this machine is back"
        if state == _GONE:
            return f"this machine's tasks do not run; {_again(self._machines[rank], job, rank)}"
        return f"this machine cannot be asked: {state}"

    def _end(self, job: str, rank: int) -> str:
        """Sends SIGTERM to a machine's launcher; what is wrong, if it cannot be."""
        own, host = f"{job}/{rank}", self._machines[rank]
        script = f'[ "$(state {own})" = {_RUNNING} ] && kill -TERM "$(cat {own}/launcher)"'
        try:
            said = hosts.run(host, f"{_STATE}{script} || echo no")
        except RunError as error:
            return str(error)
        return f"{host.name}: it does not run there" if said else ""


def _at_all(machines: Sequence[Host], ask: Callable[[int], T]) -> list[T]:
    """What all machines say, by rank, asked at once."""
    with concurrent.futures.ThreadPoolExecutor(len(machines)) as pool:
        return list(pool.map(ask, range(len(machines))))


def _fields(request: Request) -> dict[str, Any]:
    assert isinstance(request, dict)
    return request


def _check(job: str) -> None:
    if not re.fullmatch(_JOB, job):
        raise UserError(f"{job!r} is no job; write its name, as the verb list shows it")


def _again(host: Host, job: str, rank: int) -> str:
    return f"`ssh {host.name} 'bash ~/.tfps/{job}/{rank}/run'` starts them again"


def _start(job: str, rank: int, fields: dict[str, Any]) -> str:
    """What starts a machine's launcher there, for it to outlive this connection."""
    exports = [f"export {name}={shlex.quote(x)}" for name, x in fields["environment"].items()]
    run = _RUN.format(
        job=job,
        directory=shlex.quote(fields["directory"]),
        lines="\n".join([*exports, *(f"{line} || end {EXIT_USER}" for line in fields["setup"])]),
        command=shlex.join(fields["command"]),
    )
    return _START.format(place=f"{job}/{rank}", run=shlex.quote(run))
