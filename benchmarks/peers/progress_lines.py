"""How a peer says how far it is; the suite reads the lines."""

import time
from typing import Any

SECONDS = 0.5


class ProgressLines:
    """Prints a line now and then, seldom enough not to matter."""

    def __init__(self) -> None:
        self._printed = 0.0

    def show(self, examples: int, loss: Any) -> None:
        """Prints a line, unless the last one was printed a moment ago.

        Args:
            examples: Trained so far.
            loss: Of a recent step, anything that `float` takes; it shows that the peer learns.
        """
        now = time.monotonic()
        if now - self._printed >= SECONDS:
            self._printed = now
            print(f"TRAINED {examples} loss {float(loss):.4f}", flush=True)
