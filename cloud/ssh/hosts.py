"""The machines of `--hosts`, and commands that run there."""

import dataclasses
import shlex
import subprocess
from collections.abc import Mapping, Sequence

from cloud.node import places
from tfps.errors import RunError, UserError

# Nobody is there to answer a question; a machine that is gone is noticed.
OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15")
_SSH_FAILED = 255  # exit code of ssh itself
_SECONDS = 120.0  # for a command, and for what it prints


@dataclasses.dataclass(frozen=True)
class Host:
    """A machine."""

    name: str  # by which this user's ssh reaches it, be it one of ~/.ssh/config
    address: str  # by which the other machines reach it


class UnreachableError(RunError):
    """ssh has not reached a machine."""


def read(hosts: str) -> list[Host]:
    """The machines of a flag, in their order.

    Args:
        hosts: A file with a machine per line, or machines separated by commas. A second word is the
            address by which the other machines reach it; without one it is what ssh connects to.

    Raises:
        UserError: There is none, or one is no name of a machine.
    """
    found: list[Host] = []
    for words in places.listed("--hosts", hosts):
        name, *rest = words
        if len(rest) > 1 or any(word.startswith("-") for word in words):
            line = " ".join(words)
            raise UserError(f"--hosts: {line!r} is no machine; write HOST, or HOST ADDRESS")
        found.append(Host(name, rest[0] if rest else _address(name)))
    if not found:
        raise UserError(f"--hosts={hosts} names no machine; give a file with one per line")
    for what in ("name", "address"):
        each = [getattr(host, what) for host in found]
        if twice := next((x for x in each if each.count(x) > 1), None):
            raise UserError(
                f"--hosts={hosts}: two machines have the {what} {twice}; write each once, with the "
                "address by which the others reach it behind its name"
            )
    return found


def _address(name: str) -> str:
    """Where ssh connects to for a name, as the user's configuration has it."""
    done = _client("-G", "--", name)
    lines = done.stdout.decode("utf-8", "backslashreplace").splitlines()
    fields = dict(line.split(" ", 1) for line in lines if " " in line)
    if done.returncode or not fields.get("hostname"):
        raise UserError(f"--hosts: {name!r} is no machine: {why(done.returncode, done.stderr)}")
    return fields["hostname"]


def _client(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
    command = ["ssh", *arguments]
    try:
        return subprocess.run(
            command, input=stdin.encode(), capture_output=True, timeout=_SECONDS, check=False
        )
    except FileNotFoundError:
        raise _no_client() from None
    except subprocess.TimeoutExpired:
        name = arguments[arguments.index("--") + 1]
        raise UnreachableError(f"`ssh {name}` has not ended in {_SECONDS:.0f} s") from None


def preparation(environment: Mapping[str, str], setup: Sequence[str], failed: str) -> str:
    """Lines of bash that set what a job's tasks need; `failed` runs where one of `setup` fails."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    return "\n".join([*exports, *(f"{line} || {failed}" for line in setup)])


def run(host: Host, script: str) -> bytes:
    """Runs a script of the shell on a machine; what it prints.

    Raises:
        UnreachableError: ssh says why.
        RunError: The script has failed.
    """
    done = _client(*OPTIONS, "--", host.name, "exec sh -s", stdin=script)
    if done.returncode:
        kind = UnreachableError if done.returncode == _SSH_FAILED else RunError
        raise kind(f"{host.name}: {why(done.returncode, done.stderr)}")
    return done.stdout


def start(host: Host, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts a command on a machine; lines go both ways."""
    try:
        return subprocess.Popen(
            ["ssh", *OPTIONS, "--", host.name, f"exec {shlex.join(command)}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise _no_client() from None


def _no_client() -> UserError:
    return UserError("ssh is not on this machine; install OpenSSH's client")


def why(code: int, errors: bytes) -> str:
    """What ssh, or what it has started, says last of its end."""
    lines = errors.decode("utf-8", "backslashreplace").splitlines()
    said = [line.strip() for line in lines if line.strip(" \r@*-")]
    text = said[-1] if said else f"it ended with {code}"
    if code == _SSH_FAILED and "verification failed" in text:
        return f"{text} Connect once with `ssh`, and compare the key that it shows"
    return text
