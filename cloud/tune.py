r"""Searches for better settings: `python -m cloud.tune --study=FILE --trials=40 … -- …`.

    python -m cloud.tune --study=mine_study.py --trials=40 --parallel=4 \
      --target=local --workers=2 --ps=1 -- \
      --config=mine.py --data.train=data/train --data.eval=data/eval --job_dir=runs/search

Each trial is a job of `cloud.submit`, whose flags stand before `--` as well; its directory is
JOB_DIR/trials/NUMBER. Optuna proposes what FILE's get_study() lets it choose, and gives trials up
that fall behind. Started again, the same command continues where it was stopped.
"""

import math
import os
import pathlib
import signal
import sys
from collections.abc import Sequence

from absl import flags

from cloud import command_line
from cloud.help_text import help_text
from cloud.job_spec import flag_value, split_at_tasks
from cloud.remote_target import say
from cloud.tuning.search import Plan, Search
from cloud.tuning.study import Study
from tfps import python_config
from tfps.errors import RunError, UserError
from tfps.storage.paths import is_local

_PROGRAM = "python -m cloud.tune"
_FLAGS = flags.FlagValues()
_SHOWN = 10
_ELSEWHERE = ("vertex", "kubernetes")  # targets whose tasks see no file of this machine


def _define_flags() -> None:
    for name, text in (
        ("study", "Python file with get_study(), which returns a cloud.tuning.study.Study."),
        ("storage", "Local file of Optuna's journal; default: JOB_DIR/study.journal."),
        ("name", "Name of the study, and of its jobs before their numbers; default: study."),
    ):
        flags.DEFINE_string(name, None, text, flag_values=_FLAGS)
    flags.DEFINE_integer("trials", 20, "Trials in all.", 1, flag_values=_FLAGS)
    flags.DEFINE_integer("parallel", 1, "Trials at a time.", 1, flag_values=_FLAGS)
    flags.DEFINE_boolean("help", False, "Show this help.", short_name="h", flag_values=_FLAGS)


_define_flags()


def main(argv: Sequence[str]) -> int:
    """Runs a search; 2 for a user's mistake, 3 if trials fail one after the other."""
    before, of_tasks = split_at_tasks(argv)
    try:
        _FLAGS.set_gnu_getopt(True)  # flags of cloud.submit may stand before those of here
        try:
            own = _FLAGS(before, known_only=True)[1:]
        except command_line.WRONG_FLAGS as error:
            raise UserError(command_line.explain(error, _PROGRAM, has_tasks=True)) from None
        if _FLAGS.help:
            print(help_text(__doc__ or "", [_FLAGS[name] for name in _FLAGS]))  # noqa: T201
            return 0
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return _run(own, of_tasks)
    except (UserError, RunError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - an entry point's message
        return error.exit_code
    except KeyboardInterrupt:
        say("stopped; the same command continues where this was")
        return 128 + signal.SIGINT


def _run(own: Sequence[str], arguments: Sequence[str]) -> int:
    if not _FLAGS.study:
        raise UserError("--study is missing: name a Python file with get_study()")
    target = flag_value("target", own)
    if not target:
        raise UserError("--target is missing: where jobs run, as for `python -m cloud.submit`")
    job_dir = flag_value("job_dir", arguments).rstrip("/")
    if not job_dir:
        raise UserError("the tasks' arguments have no --job_dir: add it after --")
    if target in _ELSEWHERE and is_local(job_dir) and not os.path.isdir(job_dir):
        raise UserError(
            f"--job_dir={job_dir} is no directory here, where the trials' reports are read: name "
            "gs://…, or make a directory that the tasks see by the same name"
        )
    if not is_local(job_dir) and not _FLAGS.storage:
        raise UserError(f"--job_dir={job_dir} is no local directory: give --storage=FILE, too")
    if _FLAGS.storage and not is_local(_FLAGS.storage):
        raise UserError(f"--storage={_FLAGS.storage} is no local file, as Optuna's journal must be")
    storage = pathlib.Path(_FLAGS.storage or f"{job_dir}/study.journal").absolute()
    name = _FLAGS.name or "study"
    log_dir = storage.parent / "trial_logs"
    plan = Plan(name, own, arguments, job_dir, log_dir, target == "local")
    study = python_config.load(_FLAGS.study, "--study", "get_study", Study)
    with Search(study, plan, storage) as search:
        try:
            search.run(_FLAGS.trials, _FLAGS.parallel)
        finally:
            _show(search, study, storage)
    return 0


def _show(search: Search, study: Study, storage: pathlib.Path) -> None:
    """Prints the best trials, and writes the best one's fields as flags."""
    sign = -1.0 if study.direction == "maximize" else 1.0
    rows = sorted(search.rows(), key=lambda row: math.inf if row[2] is None else sign * row[2])
    say(f"\n{'trial':>5}  {'state':<8}  {study.metric:>10}  fields")
    for number, state, value, fields in rows[:_SHOWN]:
        shown = "" if value is None else f"{value:.6g}"
        chosen = " ".join(f"{name}={x}" for name, x in fields.items())
        say(f"{number:>5}  {state:<8}  {shown:>10}  {chosen}")
    if len(rows) > _SHOWN:
        say(f"… and {len(rows) - _SHOWN} more")
    if best := search.best():
        path = storage.with_name("best.flags")
        path.write_text("".join(f"--{name}={value}\n" for name, value in best.items()))
        say(f"the best one's fields: --flagfile={path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv))
