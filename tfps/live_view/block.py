"""Lines that stay below all others on a terminal, until they are drawn anew."""

from collections.abc import Sequence


class LiveBlock:
    """Says what to write so that a block of lines is replaced, or stays below what is written.

    Its lines must be narrower than the terminal: what a terminal breaks cannot be erased.
    """

    def __init__(self) -> None:
        self._lines: Sequence[str] = ()

    @property
    def is_shown(self) -> bool:
        """Whether there are lines on the terminal."""
        return bool(self._lines)

    def replace(self, lines: Sequence[str]) -> str:
        """What makes other lines the block; no lines take it away."""
        erased = self.erased()
        self._lines = lines
        return f"{erased}{self.drawn()}"

    def below(self, text: str) -> str:
        """What writes a text, which ends with its line, above the block."""
        return f"{self.erased()}{text}{self.drawn()}"

    def erased(self) -> str:
        """What takes the block off the terminal, on which it is the last."""
        if not self._lines:
            return ""
        above = len(self._lines) - 1
        return f"\r\x1b[{above}A\x1b[J" if above else "\r\x1b[K"

    def drawn(self) -> str:
        """What puts the block on the terminal, at the beginning of a line."""
        return "\n".join(self._lines)
