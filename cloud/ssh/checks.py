"""Looks at all machines before anything starts there."""

import concurrent.futures
import json
import pathlib
import secrets
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tfps
from cloud.ssh import hosts, probe
from cloud.ssh.hosts import Host
from tfps import byte_size
from tfps.errors import UserError

_SECONDS = 90.0  # for all machines together
_SETUP_SECONDS = 600.0  # more, where there are lines of --setup
_LEAST_BYTES = 1 << 30
_OLDEST_PYTHON = (3, 11)
_NO_DIRECTORY, _NO_PYTHON, _OLD_PYTHON, _NO_SETUP = 41, 42, 43, 44
# An older Python may not be able to read the probe's text, but this, be it a Python 2.
_LOOK = f"""
import sys
if sys.version_info < {_OLDEST_PYTHON}:
    sys.stderr.write("%d.%d.%d\\n" % sys.version_info[:3])
    sys.exit({_OLD_PYTHON})
"""
_BEGIN = f"""
cd "$1" || exit {_NO_DIRECTORY}
of_probe=("$@")
set --
{{ :
%s
}} >&2 < /dev/null
set -- "${{of_probe[@]}}"
command -v "$2" >&2 || exit {_NO_PYTHON}
"$2" -c "$3" < /dev/null
[ $? != {_OLD_PYTHON} ] || exit {_OLD_PYTHON}
exec "$2" -c "$4"
"""
_Answer = dict[str, Any]


class Needs(NamedTuple):
    """What a job needs of machines."""

    directory: str  # in which its tasks run
    python: str
    paths: Sequence[str]  # that must be there
    job_dir: str  # that all must see; empty where it is no path
    ports: Sequence[Sequence[int]]  # of each machine; of the first, that of the meeting first
    environment: Mapping[str, str] = {}  # but the rank
    setup: Sequence[str] = ()  # lines of bash that run first


class _RefusedError(Exception):
    """Why a machine cannot be used."""


class _Probe:
    """One machine, while it is looked at."""

    def __init__(self, host: Host, rank: int, needs: Needs):
        self.host = host
        self._needs = needs
        text = pathlib.Path(probe.__file__).read_text(encoding="utf-8")
        own = (needs.directory, needs.python, _LOOK, text)
        environment = {**needs.environment, "RANK": str(rank)}
        lines = hosts.preparation(environment, needs.setup, f"exit {_NO_SETUP}")
        self.process = hosts.start(host, ["bash", "-c", _BEGIN % lines, "bash", *own])

    def ask(self, question: object) -> _Answer:
        """Sends a line, and returns what the next one says."""
        assert self.process.stdin
        assert self.process.stdout
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        try:
            answer: _Answer = json.loads(line)
        except ValueError:
            raise _RefusedError(self._why(line)) from None
        return answer

    def close(self) -> None:
        """Lets it clean up and end."""
        try:
            self.process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def _why(self, line: bytes) -> str:
        _, errors = self.process.communicate()
        if self.process.returncode == _NO_DIRECTORY:
            return f"there is no directory {self._needs.directory}; name it with --directory"
        if self.process.returncode == _NO_PYTHON:
            return f"there is no program {self._needs.python}; name it with --python"
        if self.process.returncode == _NO_SETUP:
            return f"a line of --setup has failed: {hosts.why(_NO_SETUP, errors)}"
        if self.process.returncode == _OLD_PYTHON:
            version = hosts.why(_OLD_PYTHON, errors)
            return f"Python {version} is too old; name a newer with --python"
        if self.process.returncode < 0:
            return f"it has not answered in {_limit(self._needs):g} s"
        return hosts.why(self.process.returncode, errors or line)


def check(machines: Sequence[Host], needs: Needs) -> int:
    """Looks at all machines at once.

    Returns:
        The port of the first machine at which all meet: a free one unless `needs` names it.

    Raises:
        UserError: What is wrong, of each machine.
    """
    probes = [_Probe(host, rank, needs) for rank, host in enumerate(machines)]
    limit = threading.Timer(_limit(needs), _kill, [probes])
    limit.start()
    try:
        with concurrent.futures.ThreadPoolExecutor(len(probes)) as pool:
            mark = _mark(needs) if len(machines) > 1 else ""
            found = _ask_all(pool, probes, lambda rank: _first_question(needs, rank, mark))
            _refuse({host: _problems(each, found[0]) for host, each in _by_host(machines, found)})
            ports = [(host.address, each["port"]) for host, each in _by_host(machines, found)]
            seen = _ask_all(pool, probes, lambda rank: {"others": ports, "look": mark})
            _refuse(
                {host: _of_others(each, ports, needs) for host, each in _by_host(machines, seen)}
            )
            return int(found[0]["port"])
    finally:
        limit.cancel()
        for each in probes:
            each.close()


def _limit(needs: Needs) -> float:
    return _SECONDS + (_SETUP_SECONDS if needs.setup else 0.0)


def _kill(probes: Sequence[_Probe]) -> None:
    for each in probes:
        each.process.kill()


def _by_host(machines: Sequence[Host], found: Sequence[_Answer]) -> list[tuple[Host, _Answer]]:
    return list(zip(machines, found, strict=True))


def _mark(needs: Needs) -> str:
    """A file that the first machine makes for the others to look for."""
    return f"{needs.job_dir}/.tfps-{secrets.token_hex(8)}" if needs.job_dir else ""


def _first_question(needs: Needs, rank: int, mark: str) -> _Answer:
    ports = needs.ports[rank]
    return {"paths": list(needs.paths), "ports": list(ports), "put": "" if rank else mark}


def _ask_all(
    pool: concurrent.futures.Executor,
    probes: Sequence[_Probe],
    question: Callable[[int], object],
) -> list[_Answer]:
    asked = [pool.submit(each.ask, question(rank)) for rank, each in enumerate(probes)]
    found: list[_Answer] = []
    refused: dict[Host, list[str]] = {}
    for each, future in zip(probes, asked, strict=True):
        try:
            found.append(future.result())
        except _RefusedError as error:
            refused[each.host] = [str(error)]
    _refuse(refused)
    return found


def _refuse(problems: dict[Host, list[str]]) -> None:
    lines = [f"{host.name}: {text}" for host, texts in problems.items() for text in texts]
    if lines:
        raise UserError(
            "machines cannot run the job; nothing was started:\n  " + "\n  ".join(lines)
        )


def _problems(found: _Answer, first: _Answer) -> list[str]:
    """What is wrong with one machine."""
    texts = []
    if found["tfps"] is None:
        texts.append("tfps is not there; install it, or name its checkout with --directory")
    elif found["tfps"] != tfps.__version__:
        texts.append(f"tfps is {found['tfps']}, here {tfps.__version__}; install the same")
    if found["tensorflow"] is None:
        texts.append("TensorFlow is not there; install it, or name its Python with --python")
    elif found["tensorflow"] != first["tensorflow"]:
        texts.append(
            f"TensorFlow is {found['tensorflow']}, on the first machine {first['tensorflow']}; "
            "install the same"
        )
    texts += [f"there is no {path}" for path in found["missing"]]
    if taken := ", ".join(map(str, found["taken"])):
        texts.append(f"something else has port {taken}; give another --first_port")
    if found["free_bytes"] < _LEAST_BYTES:
        free, least = map(byte_size.show, (found["free_bytes"], _LEAST_BYTES))
        texts.append(f"only {free} of its disk are free; a job needs {least}")
    return texts


def _of_others(seen: _Answer, ports: Sequence[tuple[str, int]], needs: Needs) -> list[str]:
    """What is wrong with what one machine sees of the others."""
    texts = [
        f"it cannot reach {host} at port {port}: {error}; open the machines' ports for each "
        "other, or write an address behind the machine's name in --hosts"
        for (host, port), error in zip(ports, seen["refused"], strict=True)
        if error
    ]
    if not seen["sees"]:
        texts.append(
            f"it does not see --job_dir={needs.job_dir} of the first machine; name a directory "
            "that all machines share, or gs://…"
        )
    return texts
