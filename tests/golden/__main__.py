"""Renders all kept requests again and shows what has changed: `python -m tests.golden`."""

import difflib

from tests.golden.cases import CASES, DIRECTORY, path, rendered


def main() -> None:
    """Writes every file; those of no case go."""
    for file in DIRECTORY.glob("*.yaml"):
        if file.stem not in CASES:
            file.unlink()
            print(f"removed {file.name}")
    for name in CASES:
        file = path(name)
        before = file.read_text() if file.exists() else ""
        after = rendered(name)
        file.write_text(after)
        lines = [text.splitlines(keepends=True) for text in (before, after)]
        print("".join(difflib.unified_diff(*lines, f"{name} (before)", f"{name} (now)")), end="")


if __name__ == "__main__":
    main()
