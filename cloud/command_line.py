"""The command line of a program with a --target, each of which has flags of its own."""

import importlib
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import flags

from cloud import remote_target
from cloud.help_text import help_text
from cloud.job_spec import split_at_tasks
from tfps.errors import RunError, UserError, printable

DefineFlags = Callable[[flags.FlagValues], None]
WRONG_FLAGS = (flags.Error, ValueError)  # what absl raises; the latter of --noFLAG=value


def positive(flag: str, text: str) -> int:
    """A whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"{flag}={text}: write a whole number of 1 or more")
    return int(text)


def pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Values by name, of texts such as NAME=value."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"{flag}={text}: write it as NAME=value")
        if name in found:
            raise UserError(f"{flag}={name}=… is given twice; keep one")
        found[name] = value
    return found


def run_launcher(
    argv: Sequence[str],
    values: flags.FlagValues,
    program: str,
    text: str,
    run: Callable[[tuple[str, ...]], int],
) -> int:
    """Runs a launcher with the tasks' arguments, those after `--`; returns its exit code.

    `text` is what its help begins with.
    """
    before, of_tasks = split_at_tasks(argv)

    def launch() -> int:
        try:
            own = values(before)[1:]
        except WRONG_FLAGS as error:
            raise UserError(explain(error, program, has_tasks=True)) from error
        if values.help:
            print(help_text(text, [values[name] for name in values]))  # noqa: T201 - asked for
            return 0
        if own:
            raise UserError(f"unexpected argument {own[0]!r}: put the tasks' arguments after --")
        return run(tuple(of_tasks))

    return guarded(launch)


def guarded(run: Callable[[], int]) -> int:
    """Runs a program; a mistake or a failure is one message, with its exit code."""
    try:
        return run()
    except (UserError, RunError) as error:
        text = printable(str(error).expandtabs())
        print(f"error: {text}", file=sys.stderr)  # noqa: T201 - an entry point's message
        return error.exit_code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def explain(error: Exception, program: str, has_tasks: bool) -> str:
    """What is wrong with a program's flags; those of a launcher's tasks stand elsewhere."""
    text = f"{' '.join(str(error).split())}; `{program} --help` lists the flags"
    if has_tasks and isinstance(error, flags.UnrecognizedFlagError):
        text += f". Flags of the tasks stand behind --: {program} … -- --{error.flagname}=…"
    return text


class CommandLine:
    """Flags of a program and of all its targets, and what is parsed of them.

    A target is a module with `define_flags(values)`, and `from_flags(values)`, which returns what
    they describe. Loading it loads no client of its platform.
    """

    def __init__(
        self,
        program: str,
        targets: Mapping[str, str],
        define_own: DefineFlags,
        has_tasks: bool = False,
    ):
        self.values = flags.FlagValues()  # an own set, since absl.logging has a --log_dir too
        self._program = program
        self._has_tasks = has_tasks  # whose flags stand behind --
        self._targets = targets
        values, form = self.values, remote_target.FORMATS[0]
        flags.DEFINE_enum("target", None, list(targets), "Platform.", flag_values=values)
        flags.DEFINE_boolean(
            "dry_run", False, "Prints the requests; sends nothing.", flag_values=values
        )
        flags.DEFINE_enum(
            "format", form, remote_target.FORMATS, "Of --dry_run.", flag_values=values
        )
        flags.DEFINE_boolean("help", False, "Show this help.", short_name="h", flag_values=values)
        define_own(values)
        self._owners: dict[str, list[str]] = {}  # modules of the targets that have a flag
        self._own: dict[str, flags.FlagValues] = {}  # as each module describes them
        for module in dict.fromkeys(targets.values()):
            own = self._own[module] = flags.FlagValues()
            importlib.import_module(module).define_flags(own)
            for flag in own:
                if flag not in self._owners:
                    self.values[flag] = own[flag]
                self._owners.setdefault(flag, []).append(module)

    def parse(self, argv: Sequence[str]) -> tuple[list[str], list[str]]:
        """Parses the flags; returns what else stands before `--`, and what after."""
        before, of_tasks = split_at_tasks(argv)
        self.values.set_gnu_getopt(True)  # flags may stand behind the verb
        try:
            own = self.values(before)[1:]
        except WRONG_FLAGS as error:
            raise UserError(explain(error, self._program, self._has_tasks)) from None
        return own, of_tasks

    def help(self, doc: str) -> str:
        """The program's flags, and those of the chosen target."""
        own = [self.values[name] for name in self.values if name not in self._owners]
        chosen = self.values.target
        if chosen is None:
            hint = "With --target=TARGET, --help shows the flags of that target too: {}."
            return f"{help_text(doc, own)}\n\n{hint.format(', '.join(self._targets))}"
        of_target = self._targets[chosen]
        described = self._own[of_target]
        found = [*own, *(described[name] for name in described)]
        return help_text(doc, found, {f"of --target={chosen}": sorted(described)})

    def target(self) -> Any:
        """What the module of --target makes of the flags."""
        chosen = self.values.target
        if chosen is None:
            raise UserError(f"--target is missing; give one of {', '.join(self._targets)}")
        for flag, owners in self._owners.items():
            if self._targets[chosen] not in owners and self.values[flag].present:
                theirs = next(name for name, own in self._targets.items() if own in owners)
                raise UserError(f"--{flag} is of --target={theirs}, not {chosen}")
        return importlib.import_module(self._targets[chosen]).from_flags(self.values)
