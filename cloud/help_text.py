"""What `--help` of a program prints: its flags in groups, those that it needs first."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from absl import flags

_WIDTH = 88
_REPEAT = "; repeat this option to specify a list of values"  # which absl adds
REQUIRED, OTHERS, ALL = "needed", "others", "flags"


def help_text(
    doc: str, found: Iterable[flags.Flag], groups: Mapping[str, Sequence[str]] | None = None
) -> str:
    """A program's docstring and its flags.

    Args:
        groups: Names of flags by the title above them. Flags of no group come last, and first those
            without which the program does not start.
    """
    by_name = {flag.name: flag for flag in sorted(found, key=lambda flag: str(flag.name))}
    needed = [name for name, flag in by_name.items() if _is_required(flag)]
    titled = {REQUIRED: needed, **(groups or {})}
    named = {name for names in titled.values() for name in names}
    titled[OTHERS if named else ALL] = [name for name in by_name if name not in named]
    parts = [doc.strip()]
    for title, names in titled.items():
        of_group = [name for name in names if name in by_name]
        if title != REQUIRED:
            of_group = [name for name in of_group if name not in needed]
        if of_group:
            parts += ["", f"{title}:", *(_shown(by_name[name]) for name in of_group)]
    return "\n".join(parts)


def _is_required(flag: flags.Flag) -> bool:
    return any("must have a value" in validator.message for validator in flag.validators)


def _shown(flag: flags.Flag) -> str:
    name = f"--{'[no]' if isinstance(flag, flags.BooleanFlag) else ''}{flag.name}"
    meaning = " ".join(flag.help.split()).removesuffix(_REPEAT)
    lines = textwrap.wrap(
        f"{name}: {meaning}", _WIDTH, initial_indent="  ", subsequent_indent="    "
    )
    if flag.default not in (None, "", []):
        lines.append(f"    (default: {flag.default_as_str})")
    return "\n".join(lines)
