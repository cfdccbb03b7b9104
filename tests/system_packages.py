"""Installs what a make verb needs of Debian's packages: `python -m tests.system_packages slurm`."""

import os
import shutil
import subprocess
import sys
from typing import NamedTuple


class Needs(NamedTuple):
    """What one verb needs, and what of it shows that it is there."""

    packages: tuple[str, ...]
    programs: tuple[str, ...]
    starts: str  # as root


NEEDS = {
    "slurm": Needs(
        ("slurmctld", "slurmd", "slurm-client", "munge"),
        ("slurmctld", "slurmd", "srun", "munged"),
        "Slurm's daemons",
    ),
    "ssh": Needs(
        ("openssh-server", "openssh-client", "iproute2"),
        ("sshd", "ssh", "ip"),
        "OpenSSH's servers in networks of their own",
    ),
}
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def missing(verb: str) -> list[str]:
    """Programs that are not on this machine."""
    return [name for name in NEEDS[verb].programs if shutil.which(name, path=PATH) is None]


def main(verb: str) -> int:
    """Installs what is missing; 2 where that cannot be."""
    needs = NEEDS[verb]
    if os.geteuid():
        print(f"error: make {verb} starts {needs.starts}, which needs root", file=sys.stderr)
        return 2
    if not missing(verb):
        return 0
    print(f"installing {' '.join(needs.packages)} with apt-get", flush=True)
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *needs.packages],
    ):
        try:
            subprocess.run(command, env=environ, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"error: `{' '.join(command)}`: {error}; install them yourself", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
