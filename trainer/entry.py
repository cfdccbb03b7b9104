"""How every entry point parses its flags, reports an error to a person, and exits.

It loads no TensorFlow, so that a role may still set the environment in which that loads.
"""

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from absl import app, flags

from cloud.help_text import help_text
from tfps.errors import EXIT_BUG, EXIT_OK, EXIT_USER, RunError, UserError, printable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

_EXIT_INTERRUPTED, _EXIT_PIPE = 130, 141
_HELP = {"--help", "-h", "--helpfull", "--helpshort"}
_as_line: list[Callable[[str], str]] = []


def write_errors_with(as_line: Callable[[str], str]) -> None:
    """Lets the error that ends the program be written as a line of another form, such as JSON."""
    _as_line.append(as_line)


def run(
    main: Callable[[], int | None],
    has_lasting_threads: bool = False,
    operand: str = "",
    rewritten: Callable[[Sequence[str]], list[str]] = list,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Parses the flags, runs `main` and exits with its status (None is 0).

    A bad flag, a `UserError` and a `RunError` end as one line `error: …` on stderr, without a
    traceback, with the exit code 2, or the exception's own. With `has_lasting_threads` the process
    ends without waiting for its threads: those that wait for closures in flight, and TensorFlow's
    servers, cannot be ended. `operand` names a flag whose value, or values if there may be several,
    needs no flag. `groups` are titles of `--help`, each with its flags.
    """

    def guarded(arguments: list[str]) -> int | None:
        if operand:
            _take_operands(arguments, flags.FLAGS[operand])
        if len(arguments) > 1:
            _fail(f"unexpected argument {arguments[1]!r}; flags begin with --", EXIT_USER)
        try:
            status = main()
            sys.stdout.flush()
            return status
        except BrokenPipeError:  # of `| head`, which has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(_EXIT_PIPE)
        except (UserError, RunError) as error:
            _fail(str(error), error.exit_code)
        except KeyboardInterrupt:
            _fail("interrupted", _EXIT_INTERRUPTED)

    def leaving(arguments: list[str]) -> NoReturn:
        try:
            status = guarded(arguments) or EXIT_OK
        except SystemExit as leave:
            status = leave.code if isinstance(leave.code, int) else EXIT_BUG
        except Exception:
            _write_error(traceback.format_exc().rstrip())
            status = EXIT_BUG
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    app.run(
        leaving if has_lasting_threads else guarded,
        flags_parser=lambda arguments: _parsed(arguments, rewritten, groups),
    )


def _take_operands(arguments: list[str], flag: flags.Flag) -> None:
    """Gives a flag what stands on the command line without one."""
    if isinstance(flag, flags.MultiFlag):
        flag.value += arguments[1:]
        del arguments[1:]
    elif len(arguments) == 2:
        if flag.present:
            _fail(f"--{flag.name}={flag.value} and {arguments[1]!r}: give one of them", EXIT_USER)
        flag.value = arguments.pop()


def _parsed(
    arguments: list[str],
    rewritten: Callable[[Sequence[str]], list[str]],
    groups: Mapping[str, Sequence[str]] | None,
) -> list[str]:
    if _HELP & set(arguments):
        doc = sys.modules["__main__"].__doc__ or ""
        own = flags.FLAGS.get_key_flags_for_module("__main__")
        sys.stdout.write(help_text(doc, own, groups) + "\n")
        sys.exit(EXIT_OK)
    try:
        return list(flags.FLAGS([arguments[0], *rewritten(arguments[1:])]))
    except UserError as error:
        _fail(str(error), error.exit_code)
    except (flags.Error, ValueError) as error:  # the latter of --noFLAG=value
        message = " ".join(str(error).split())
        _fail(f"{message} (--help lists the flags)", EXIT_USER)


def _fail(message: str, code: int) -> NoReturn:
    sys.stdout.flush()
    _write_error(f"error: {printable(message)}")
    sys.exit(code)


def _write_error(text: str) -> None:
    for as_line in _as_line:
        text = as_line(text)
    sys.stderr.write(f"{text}\n")
