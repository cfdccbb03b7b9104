"""What ends a run: exceptions that are printed without a traceback."""

import re
from collections.abc import Iterable

EXIT_OK = 0
EXIT_BUG = 1
EXIT_USER = 2
EXIT_RUN = 3
EXIT_RESIZED = 75  # of a chief whose launcher is to start another number of tasks
_PLAIN = re.compile(r"[\w.:/-]+(?: [\w.:/-]+)*")
_MOST_CHARACTERS = 60


def reason_of(error: BaseException) -> str:
    """What an error of somebody else's code says, in one line.

    Its type stands before it where the text alone says little: `KeyError: 'user'`. The account of
    frames with which TensorFlow and Keras surround the reason is left out.
    """
    text = " ".join(_without_account(str(error)).split())
    is_bare = isinstance(error, LookupError) or not text
    return f"{type(error).__name__}: {text}".removesuffix(": ") if is_bare else text


def _without_account(text: str) -> str:
    """An error's text without the frames before the reason and the call's arguments after it."""
    text = text.partition("Arguments received by ")[0]
    _, frame, last = text.rpartition('File "')  # a frame is this line and a line of code
    return last.split("\n", 2)[-1] if frame and last.count("\n") > 1 else text


def printable(text: str) -> str:
    """A text without what a terminal would act on; line breaks stay.

    Args:
        text: May hold anything, such as escape sequences or bytes that are no text.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def quoted(value: str | bytes) -> str:
    """A value of a record or a file in quotes, on one line, and not too long."""
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else value
    cut = len(text) > _MOST_CHARACTERS
    return f"{text[:_MOST_CHARACTERS]!r}{'…' if cut else ''}"


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names that stand in a record or a file, with commas between them.

    Only those are quoted that are no plain words.
    """
    found = list(names)
    shown = [
        name if len(name) <= _MOST_CHARACTERS and _PLAIN.fullmatch(name) else quoted(name)
        for name in found[:most]
    ]
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(shown) + more or "nothing"


class UserError(Exception):
    """Input that cannot be used: a flag, a file, an environment variable, a config.

    The message says what was wrong, where, and how to fix it. Entry points print it without a
    traceback and exit with `EXIT_USER`.
    """

    exit_code = EXIT_USER


class RunError(Exception):
    """A run that began well and cannot recover: a ps that stays away, a loss that is not finite.

    The message says what happened, at which task or lease, and what to do. Entry points print it
    without a traceback and exit with `EXIT_RUN`.
    """

    exit_code = EXIT_RUN


class LostPsError(RunError):
    """A ps went away with its share of the parameters; the last checkpoint brings them back.

    Also raised when a connection breaks before there are parameters.

    Attributes:
        leaving: Indices of the ps that said they would go, after the parameters were saved.
    """

    def __init__(self, message: str, leaving: tuple[int, ...] = ()):
        super().__init__(message)
        self.leaving = leaving


class LostWorkersError(RunError):
    """All workers are lost, and others can take their places, from the last checkpoint."""


class WorkersChangedError(Exception):
    """The run resumes with other workers, from the last checkpoint, in a new process."""
