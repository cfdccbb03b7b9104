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
import signal
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
_ALL, _OWN = "all", "own"  # what ends when a machine's launcher, or what is there before it, does
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
end() {{
  echo "$1" > "$own/exit_code.part"
  mv "$own/exit_code.part" "$own/exit_code"
  exit "$1"
}}
trap 'end {cancelled}' TERM
echo -$$ > "$own/launcher" # this and all that it runs, until there is one
echo $$ > "$own/running"
rm -f "$own/exit_code"
cd {directory} || end 2
set --
{lines}
is_cancelled=
trap 'is_cancelled=yes' TERM
{command} &
echo $! > "$own/launcher"
trap - TERM
[ -z "$is_cancelled" ] || kill -s TERM $!
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
        self._ranks = range(len(machines))
        self._read = [0] * len(machines)  # bytes of the logs
        self._told: dict[int, str] = {}  # what was said last of machines that do not run

    def send(self, requests: Sequence[Request]) -> str:
        """Starts a job on all machines, or on none; returns its name."""
        name = str(_fields(requests[0])["job"])
        now = datetime.datetime.now(datetime.UTC)
        job = f"{name}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        try:
            # The first is the last: what it says of machines that do not come is then true.
            for rank in reversed(self._ranks):
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
        ranks: Sequence[int] = self._ranks
        while ranks:
            found = dict(zip(ranks, _at_all(ranks, lambda x: self._look(job, x)), strict=True))
            for rank, (state, log) in found.items():
                yield from self._lines(rank, log)
                if said := self._news(job, rank, state):
                    yield self._machines[rank].name, said
            ranks = [rank for rank, (_, log) in found.items() if len(log) == _MOST_BYTES]

    def cancel(self, job: str) -> None:
        """Has the first machine's launcher save and end all, or each end its own."""
        _check(job)
        said = [self._end(job, 0)]
        if said[0] != _ALL:  # there is no launcher yet that would tell the others, or none any more
            said += _at_all(self._ranks[1:], lambda rank: self._end(job, rank))
        if not {_ALL, _OWN} & set(said):
            raise RunError(f"{job} cannot be ended: {'; '.join(said)}")

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

        return {"job": job, "machines": _at_all(self._ranks, ask)}

    def _look(self, job: str, rank: int) -> tuple[str, bytes]:
        """How a machine is, and what its log has that was not read, as far as one look goes."""
        own = f"{job}/{rank}"
        log = f"tail -c +{self._read[rank] + 1} {own}/log | head -c {_MOST_BYTES}"
        try:
            said = hosts.run(self._machines[rank], f"{_STATE}state {own}; {log}")
        except RunError as error:
            return str(error), b""
        state, _, found = said.partition(b"\n")
        return state.decode(), found

    def _lines(self, rank: int, log: bytes) -> Iterable[tuple[str, str]]:
        """Task and text of the whole lines; one as long as a look ends with it."""
        is_all_one = len(log) == _MOST_BYTES and b"\n" not in log
        whole = log if is_all_one else log[: log.rfind(b"\n") + 1]
        self._read[rank] += len(whole)
        for line in whole.decode("utf-8", "backslashreplace").splitlines():
            match = _LINE.match(line)
            yield (match[1], line[match.end() :]) if match else (self._machines[rank].name, line)

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
        """Sends SIGTERM to what runs on a machine: `_ALL`, `_OWN`, or why it cannot be."""
        own, host = f"{job}/{rank}", self._machines[rank]
        script = f"""{_STATE}
[ "$(state {own})" = {_RUNNING} ] || exit 0
read -r launcher < {own}/launcher
kill -s TERM -- "$launcher" || exit 0
case "$launcher" in -*) echo {_OWN};; *) echo {_ALL};; esac
"""
        try:
            said = hosts.run(host, script).decode().strip()
        except RunError as error:
            return str(error)
        return said or f"{host.name}: it does not run there"


def _at_all(ranks: Sequence[int], ask: Callable[[int], T]) -> list[T]:
    """What machines say, asked at once."""
    with concurrent.futures.ThreadPoolExecutor(max(1, len(ranks))) as pool:
        return list(pool.map(ask, ranks))


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
    run = _RUN.format(
        job=job,
        cancelled=128 + signal.SIGTERM,
        directory=shlex.quote(fields["directory"]),
        lines=hosts.preparation(fields["environment"], fields["setup"], f"end {EXIT_USER}"),
        command=shlex.join(fields["command"]),
    )
    return _START.format(place=f"{job}/{rank}", run=shlex.quote(run))
