"""Machine types and what they cost, as a list that people keep."""

import csv
import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from tfps import byte_size
from tfps.errors import UserError
from tfps.planner.throughput import Machine

_COLUMNS = ("type", "cpus", "memory", "network_gbit", "price_per_hour")
_BYTES_PER_GBIT = 1e9 / 8


class MachineType(NamedTuple):
    """A kind of machine, as a line of the list says."""

    name: str
    machine: Machine
    memory_bytes: int
    price: float  # an hour, in whatever the list is in


def read(path: str) -> list[MachineType]:
    """The machine types of a CSV file with a header.

    Raises:
        UserError: The file is not there, lacks a column, or a line has no such values.
    """
    where = f"--machines={path}"
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{where}: it cannot be read ({error})") from None
    lines = csv.DictReader(text.splitlines())
    if missing := [name for name in _COLUMNS if name not in (lines.fieldnames or ())]:
        raise UserError(f"{where}: its first line has no {missing[0]}; write {','.join(_COLUMNS)}")
    found = [_type(line, f"{where}, line {lines.line_num}") for line in lines]
    if not found:
        raise UserError(f"{where}: it has no machine; write a line for each type that you may use")
    return found


def _type(line: Mapping[str, str | None], where: str) -> MachineType:
    def number(column: str) -> float:
        text = line[column] or ""
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < 1e9:
            raise UserError(f"{where}: {column}={text} is no positive number")
        return value

    name = line["type"] or ""
    if not name:
        raise UserError(
            f"{where}: it has no type; write the platform's name, such as n2-standard-8"
        )
    machine = Machine(number("cpus"), number("network_gbit") * _BYTES_PER_GBIT)
    memory = byte_size.parse(line["memory"] or "", f"{where}: memory")
    return MachineType(name, machine, memory, number("price_per_hour"))
