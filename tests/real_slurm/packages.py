"""Installs Slurm and MUNGE from Debian's packages: `python -m tests.real_slurm.packages`."""

import os
import shutil
import subprocess
import sys

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
_PROGRAMS = ("slurmctld", "slurmd", "srun", "munged")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def missing() -> list[str]:
    """Programs that are not on this machine."""
    return [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]


def main() -> int:
    """Installs what is missing; 2 where that cannot be."""
    if os.geteuid():
        print("error: make slurm starts Slurm's daemons, which needs root", file=sys.stderr)
        return 2
    if not missing():
        return 0
    print(f"installing {' '.join(PACKAGES)} with apt-get", flush=True)
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "-qq", "update"],
        ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", *PACKAGES],
    ):
        try:
            subprocess.run(command, env=environ, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"error: `{' '.join(command)}`: {error}; install Slurm yourself", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
