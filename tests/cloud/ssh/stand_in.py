"""OpenSSH's client as far as the target uses it, on this machine.

`install` puts `ssh` into a directory for PATH. What it is asked to run is run here, with a home of
the machine's own, unless a file `HOST.away` has what ssh would say. `tests/real_ssh` has the real
one.
"""

import os
import pathlib
import subprocess
import sys

_OPTIONS = ("BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15")


def install(directory: pathlib.Path) -> None:
    """Makes the command."""
    command = directory / "ssh"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {directory} "$@"\n')
    command.chmod(0o755)


def ssh(directory: pathlib.Path, arguments: list[str]) -> int:
    """Answers as the client does."""
    if arguments[0] == "-G":
        assert arguments[1] == "--"
        print(f"user root\nhostname {arguments[2].rpartition('@')[2]}.example")
        return 0
    options, (host, command) = arguments[: 2 * len(_OPTIONS) + 1], arguments[-2:]
    assert options == [*(x for each in _OPTIONS for x in ("-o", each)), "--"]
    away = directory / f"{host}.away"
    if away.exists():
        print(away.read_text(), file=sys.stderr)
        return 255
    home = directory / host
    home.mkdir(exist_ok=True)
    environ = os.environ | {"HOME": str(home)}
    return subprocess.run(["sh", "-c", command], env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(ssh(pathlib.Path(sys.argv[1]), sys.argv[2:]))
