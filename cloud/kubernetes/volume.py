"""What a pod mounts."""

import dataclasses
import re

from tfps.errors import UserError

SCRATCH = "/tmp"  # noqa: S108 - of the container, on a volume of its own


@dataclasses.dataclass(frozen=True)
class Volume:
    """A persistent volume claim that every task mounts.

    Attributes:
        claim: Name of the claim, which more than one node must be able to mount.
    """

    claim: str
    path: str

    @classmethod
    def parse(cls, text: str) -> "Volume":
        """Reads CLAIM:/PATH."""
        match = re.fullmatch(r"(?P<claim>[a-z0-9]([a-z0-9.-]*[a-z0-9])?):(?P<path>/[^:]+)", text)
        if not match or match["path"].rstrip("/") in ("", SCRATCH):
            raise UserError(
                f"--volume={text}: write CLAIM:/PATH, a persistent volume claim and where to "
                f"mount it, which may not be / or {SCRATCH}"
            )
        return cls(match["claim"], match["path"])
