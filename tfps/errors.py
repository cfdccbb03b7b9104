"""What ends a run, told to a person: exceptions that are printed without a traceback."""

EXIT_OK = 0
EXIT_BUG = 1
EXIT_USER = 2
EXIT_RUN = 3


def reason_of(error: BaseException) -> str:
    """What an error of somebody else's code says, in one line.

    Its type stands before it where the text alone says little: `KeyError: 'user'`.
    """
    text = " ".join(str(error).split())
    is_bare = isinstance(error, LookupError) or not text
    return f"{type(error).__name__}: {text}".removesuffix(": ") if is_bare else text


class UserError(Exception):
    """Input that cannot be used: a flag, a file, an environment variable, a config.

    The message says what was wrong, where, and how to mend it. Entry points print it without a
    traceback and exit with `EXIT_USER`.
    """

    exit_code = EXIT_USER


class RunError(Exception):
    """A run that began well and cannot go on: a ps that stays away, a loss that is not finite.

    The message says what happened, at which task or lease, and what to do. Entry points print it
    without a traceback and exit with `EXIT_RUN`.
    """

    exit_code = EXIT_RUN


class LostPsError(RunError):
    """A ps went away with its share of the parameters; the last checkpoint brings them back.

    So it does when a connection breaks before there are parameters.

    Attributes:
        leaving: Indices of the ps that said they would go, after the parameters were saved.
    """

    def __init__(self, message: str, leaving: tuple[int, ...] = ()):
        super().__init__(message)
        self.leaving = leaving


class WorkersChangedError(Exception):
    """The run is to go on with other workers, from the last checkpoint, in a new process."""
