"""What `--machine` says of machines: `key=value,…`, in programs that start jobs or servers."""

from collections.abc import Sequence
from typing import Any

from cloud import command_line
from tfps import byte_size
from tfps.errors import UserError


def fields(flag: str, text: str, keys: Sequence[str]) -> dict[str, Any]:
    """What `text` names of a role or of servers; `flag` is --machine= or --machine=ROLE:."""
    found: dict[str, Any] = {}
    for each in text.split(","):
        key, equals, value = each.partition("=")
        if not equals or key not in keys:
            raise UserError(f"{flag}{text}: {each!r} is no key=value; keys are {', '.join(keys)}")
        found |= _field(f"{flag}{key}", key, value)
    return found


def _field(flag: str, key: str, value: str) -> dict[str, Any]:
    if key == "memory":
        return {"memory_bytes": byte_size.parse(value, flag)}
    if key in ("cpus", "disk_gb"):
        return {key: command_line.positive(flag, value)}
    if key == "accelerator":
        name, count = _accelerator(flag, value)
        return {"accelerator": name, "accelerators": count}
    return {"machine" if key == "type" else key: value}


def _accelerator(flag: str, text: str) -> tuple[str, int]:
    """A GPU and how many, as in NVIDIA_L4:1; of `none` an empty name and 0."""
    if text == "none":
        return "", 0
    name, colon, count = text.rpartition(":")
    if not colon or not name:
        raise UserError(f"{flag}={text}: write the GPU and how many, as in NVIDIA_L4:1, or none")
    return name, command_line.positive(flag, count)
