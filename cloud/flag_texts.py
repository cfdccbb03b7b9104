"""What the texts of some flags mean."""

from collections.abc import Sequence

from tfps.errors import UserError


def positive(flag: str, text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{flag}={text}: write a whole number of 1 or more")
    return int(text)


def accelerator(flag: str, text: str) -> tuple[str, int]:
    """A GPU and how many, as in NVIDIA_L4:1; of `none` an empty name and 0."""
    if text == "none":
        return "", 0
    name, colon, count = text.rpartition(":")
    if not colon or not name:
        raise UserError(f"{flag}={text}: write the GPU and how many, as in NVIDIA_L4:1, or none")
    return name, positive(flag, count)


def pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Values by name, of texts such as NAME=value."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"{flag}={text}: write it as NAME=value")
        if name in found:
            raise UserError(f"{flag}={name}=… is given twice; keep one")
        found[name] = value
    return found
