"""The source distribution of a project, the same bytes whenever the same files are packed."""

import dataclasses
import gzip
import hashlib
import io
import pathlib
import posixpath
import subprocess
import sys
import tarfile
import tempfile

from cloud import optional_imports
from tfps.errors import UserError

_BUILD_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Sdist:
    name: str  # of the file, such as tfps-0.1.0.tar.gz
    content: bytes

    @classmethod
    def build(cls, directory: str) -> "Sdist":
        """Packs a project, with the build backend that is installed here."""
        if not pathlib.Path(directory, "pyproject.toml").is_file():
            raise UserError(f"--package={directory}: there is no pyproject.toml; name a project")
        optional_imports.load("build", "vertex")
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out]
            try:
                done = subprocess.run(
                    [*command, directory],
                    capture_output=True,
                    text=True,
                    timeout=_BUILD_SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise UserError(
                    f"--package={directory}: not packed within {_BUILD_SECONDS} s; run "
                    f"`{' '.join(command[:4])} {directory}` to see why"
                ) from None
            made = list(pathlib.Path(out).glob("*.tar.gz"))
            if done.returncode or len(made) != 1:
                raise UserError(
                    f"--package={directory} cannot be packed: {_cause(done.stdout + done.stderr)}"
                )
            return cls(made[0].name, _without_times(made[0].read_bytes()))

    def path(self, directory: str) -> str:
        """Where the file lies in a directory that holds such files: under its hash."""
        digest = hashlib.sha256(self.content).hexdigest()
        return posixpath.join(directory, "packages", digest, self.name)

    def files(self) -> list[str]:
        """Names of the files in it, below the project's directory."""
        with tarfile.open(fileobj=io.BytesIO(self.content)) as archive:
            return [member.name.partition("/")[2] for member in archive if member.isfile()]


def _cause(output: str) -> str:
    """The backend's own message, which stands before those of the frontend."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("error: ")] or lines[-2:]
    return " ".join(causes)


def _without_times(archive: bytes) -> bytes:
    """The archive with its members in order, without times and owners."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as target,
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
    ):
        for member in sorted(source, key=lambda each: each.name):
            member.mtime = member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    return packed.getvalue()
