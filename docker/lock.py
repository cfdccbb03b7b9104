"""Pins what the images install: `make image-packages`.

Writes cpu.txt and gpu.txt beside this file: every package that pyproject.toml's dependencies need,
for this interpreter and system, with the checksum of its file.
"""

import json
import pathlib
import subprocess
import sys
import tomllib

_HERE = pathlib.Path(__file__).parent
_TENSORFLOW = "tensorflow"
_EXTRAS = {"cpu": "", "gpu": "[and-cuda]"}


def main() -> None:
    """Resolves the packages of each kind of image."""
    project = tomllib.loads((_HERE.parent / "pyproject.toml").read_text())["project"]
    for kind, extra in _EXTRAS.items():
        needed = [
            each.replace(_TENSORFLOW, _TENSORFLOW + extra, 1)
            if each.startswith(f"{_TENSORFLOW}>=")
            else each
            for each in project["dependencies"]
        ]
        lines = sorted(_pins(needed))
        path = _HERE / f"{kind}.txt"
        path.write_text("# Written by `make image-packages`.\n" + "\n".join(lines) + "\n")
        print(f"{path.name}: {len(lines)} packages")  # noqa: T201 - an entry point's result


def _pins(needed: list[str]) -> list[str]:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
    command += ["--ignore-installed", "--disable-pip-version-check", "--report=-", *needed]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return [
        f"{each['metadata']['name'].lower()}=={each['metadata']['version']} "
        f"--hash=sha256:{each['download_info']['archive_info']['hashes']['sha256']}"
        for each in json.loads(done.stdout)["install"]
    ]


if __name__ == "__main__":
    main()
