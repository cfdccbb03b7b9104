"""Draws what a terminal shows of `make demo`.

    python -m benchmarks.demo_picture --output=docs/demo.svg

It runs `make demo` in a terminal of its own, keeps what is written there, and draws the lines that
tell most, with the live view as it stood in the middle of each epoch.
"""

import argparse
import errno
import os
import pathlib
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

_COLUMNS, _ROWS = 104, 40
_ERASED = re.compile(r"\x1b\[(2?K|\?25[lh])")
_ERASED_VIEW = re.compile(r"\r\x1b\[(\d+)A\x1b\[J")
_ENDED_BAR = re.compile(r"[^\n]*\n\r\x1b\[1A\x1b\[2K")  # of a program that reads or writes files
_STYLES = re.compile(r"\x1b\[[\d;]*m")
_BAR = re.compile(r"epoch \d+/\d+ [^\n]* (\d+)%$", re.MULTILINE)
# What the launcher and all tasks say as they start and end.
_LEFT_OUT = re.compile(r"^\[launcher\]|running as|serves at|waiting for| ends: ")
_MARK = "\x1b[2m⋮\x1b[0m"
_FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="SVG file")
    flags = parser.parse_args()
    flags.output.write_text(draw(list(shown(record(["make", "demo"])))))


def record(command: list[str]) -> str:
    """Runs a command in a terminal, and returns all that it wrote there.

    Raises:
        subprocess.CalledProcessError: If the command fails.
    """
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (_ROWS, _COLUMNS))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=its, stderr=its)
    os.close(its)
    written = bytearray()
    while block := _read(ours):
        written += block
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
    os.close(ours)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command)
    return written.decode()


def shown(written: str) -> Iterator[str]:
    """The lines that a terminal showed, but those that are left out, with views between them.

    Args:
        written: All that was written to the terminal.
    """
    lines = _ENDED_BAR.sub("", written.replace("\r\n", "\n")).removesuffix("\n")
    is_marked = False
    views: list[tuple[int, list[str]]] = []  # how far from the middle of an epoch, and the lines
    first, *rest = _ERASED_VIEW.split(lines)
    above = [*rest[::2], "-1"]  # lines that are erased above the last one
    for text, count in zip([first, *rest[1::2]], above, strict=True):
        found = text.split("\n")
        begin = len(found) - int(count) - 1
        if found[:begin] and views:
            yield from min(views)[1]
            views = []
        for line in found[:begin]:
            last = _ERASED.sub("", line.split("\r")[-1])
            is_left_out = bool(_LEFT_OUT.search(_STYLES.sub("", last)))
            if not is_left_out:
                yield last
            elif not is_marked:
                yield _MARK
            is_marked = is_left_out
        if bar := _BAR.search(_STYLES.sub("", "\n".join(found[begin:]))):
            views.append((abs(50 - int(bar[1])), found[begin:]))


def draw(lines: list[str]) -> str:
    """An SVG picture of a terminal with some lines, which loads no font from anywhere."""
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=_COLUMNS, file=nowhere, force_terminal=True)
        for line in lines:
            console.print(Text.from_ansi(line), highlight=False)
        picture = console.export_svg(title="make demo")
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code, monospace", _FONTS)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError as error:
        if error.errno == errno.EIO:  # so Linux says that nobody has the other end any more
            return b""
        raise


if __name__ == "__main__":
    main()
