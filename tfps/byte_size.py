"""Numbers of bytes as people write and read them."""

import re

from tfps.errors import UserError

_UNITS = {
    **{name: 1000**power for power, name in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{name: 1024**power for power, name in enumerate(("KiB", "MiB", "GiB", "TiB"), start=1)},
}
_BY_LOWER_CASE = {name.lower(): size for name, size in _UNITS.items()}


def parse(text: str, where: str) -> int:
    """The number of bytes that a text such as `16GiB`, `1.5 TB` or `500mb` names."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*", text)
    size = float(match[1]) * _BY_LOWER_CASE.get(match[2].lower(), 0) if match else 0
    if size < 1:
        raise UserError(
            f"{where}={text}: write a positive number and a unit, such as 16GiB or 500MB; "
            f"the units are {', '.join(_UNITS)}"
        )
    return int(size)


def show(size: float) -> str:
    """A number of bytes in the largest binary unit of which there is at least one."""
    for name in ("TiB", "GiB", "MiB", "KiB"):
        if size >= _UNITS[name]:
            return f"{size / _UNITS[name]:,.4g} {name}"
    return f"{size:,.4g} B"
