"""Runs the trials of a study, several at once, and goes on where an earlier process stopped."""

import contextlib
import fcntl
import json
import math
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

from cloud import optional_imports
from cloud.local.process import how_ended
from cloud.remote_target import say
from cloud.tuning import trial_job
from cloud.tuning.study import DIRECTIONS, Study
from cloud.tuning.trial_job import TrialJob
from tfps.errors import RunError, UserError, reason_of

_POLL_SECONDS = 1.0
_MOST_FAILURES = 3  # one after the other
_NUMBER, _JOB, _FIELDS = "number", "job", "fields"  # attributes of a trial


class Plan(NamedTuple):
    """What all trials have in common."""

    name: str
    flags: Sequence[str]  # of cloud.submit
    arguments: Sequence[str]  # of the tasks
    job_dir: str  # in which each has its own
    log_dir: pathlib.Path
    is_here: bool  # whether the jobs run on this machine


class _Running(NamedTuple):
    trial: Any
    number: int  # of its directory
    job: TrialJob
    reported: set[int]  # steps of its values


class Search:
    """A study with its storage, which this process alone may use: a context manager."""

    def __init__(self, study: Study, plan: Plan, storage: pathlib.Path):
        """Opens the storage.

        Raises:
            UserError: Another process uses it, or the study is none.
        """
        if study.direction not in DIRECTIONS:
            known = ", ".join(DIRECTIONS)
            raise UserError(f"the study's direction is {study.direction!r}; write one of {known}")
        self._asked = study
        self._plan = plan
        self._optuna = optional_imports.load("optuna", "tune")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        try:
            plan.log_dir.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(storage)
            self._study = self._opened(storage)
        except OSError as error:
            raise UserError(
                f"{storage}, which the search is kept in, cannot be written: {error}; give another "
                "--storage"
            ) from None
        self._running: list[_Running] = []
        self._failures = 0

    def run(self, trials: int, parallel: int) -> None:
        """Runs `trials` trials in all, those of earlier processes included, `parallel` at once."""
        for each in self._resumable():
            self._take_up(each)
        while True:
            while len(self._running) < parallel and self._count() < trials:
                self._begin()
            if not self._running:
                return
            for each in list(self._running):
                self._look(each)
            time.sleep(_POLL_SECONDS)

    def rows(self) -> Iterator[tuple[int, str, float | None, Mapping[str, Any]]]:
        """Number, state, value and fields of each trial, those that were taken up once."""
        for number, each in self._numbered().items():
            yield number, each.state.name.lower(), each.value, each.user_attrs.get(_FIELDS, {})

    def best(self) -> Mapping[str, Any]:
        """The fields of the best trial; none before one is complete."""
        with contextlib.suppress(ValueError):
            fields: dict[str, Any] = self._study.best_trial.user_attrs[_FIELDS]
            return fields
        return {}

    def __enter__(self) -> "Search":
        return self

    def __exit__(self, *exception: object) -> None:
        for each in self._running:
            each.job.leave()
            _note_name(each)
        self._lock.close()

    def _opened(self, storage: pathlib.Path) -> Any:
        optuna, asked = self._optuna, self._asked
        file = optuna.storages.journal.JournalFileBackend(str(storage))
        return optuna.create_study(
            storage=optuna.storages.JournalStorage(file),
            study_name=self._plan.name,
            direction=asked.direction,
            # Trials that run count as bad ones, for those beside them to look elsewhere.
            sampler=asked.sampler or optuna.samplers.TPESampler(constant_liar=True),
            pruner=asked.pruner or optuna.pruners.MedianPruner(),
            load_if_exists=True,
        )

    def _resumable(self) -> list[Any]:
        """Trials that an earlier process was at."""
        states = self._optuna.trial.TrialState
        return list(self._study.get_trials(states=[states.RUNNING]))

    def _take_up(self, trial: Any) -> None:
        """Has a trial's job go on, as a trial with the same values: the storage knows no other way.

        What is written first makes a second try harmless.
        """
        number = trial.user_attrs.get(_NUMBER)
        states = self._optuna.trial.TrialState
        if number is not None:  # else its job was not started
            waiting = self._study.get_trials(states=[states.WAITING])
            if not any(each.user_attrs[_NUMBER] == number for each in waiting):
                attributes = {_NUMBER: number, _JOB: trial.user_attrs.get(_JOB, "")}
                self._study.enqueue_trial(trial.params, user_attrs=attributes)
            say(f"trial {number} is taken up again")
        self._study.tell(trial.number, state=states.FAIL)

    def _numbered(self) -> dict[int, Any]:
        """The trials by number; of those that were taken up, what came last."""
        trials = self._study.get_trials(deepcopy=False)
        found = {x.user_attrs[_NUMBER]: x for x in trials if _NUMBER in x.user_attrs}
        return dict(sorted(found.items()))

    def _count(self) -> int:
        states = self._optuna.trial.TrialState
        return sum(each.state != states.WAITING for each in self._numbered().values())

    def _begin(self) -> None:
        trial = self._study.ask()
        number = trial.user_attrs.get(_NUMBER)
        if number is None:
            number = max(self._numbered(), default=-1) + 1
            trial.set_user_attr(_NUMBER, number)
        try:
            fields = dict(self._asked.suggest(trial))
            json.dumps(fields)  # as the journal will: it takes no integers of NumPy
        except Exception as error:
            raise UserError(f"suggest() of --study has failed: {reason_of(error)}") from error
        trial.set_user_attr(_FIELDS, fields)
        plan = self._plan
        own = [f"--{name}={value}" for name, value in fields.items()]
        arguments = [*plan.arguments, f"--job_dir={self._directory(number)}", *own]
        flags = [*plan.flags, f"--name={plan.name}-{number:04}"]
        log = plan.log_dir / f"{number:04}.log"
        job = TrialJob(flags, arguments, log, plan.is_here, trial.user_attrs.get(_JOB, ""))
        self._running.append(_Running(trial, number, job, set()))
        say(f"trial {number} begins: {' '.join(own)}")

    def _directory(self, number: int) -> str:
        return f"{self._plan.job_dir}/trials/{number:04}"

    def _look(self, running: _Running) -> None:
        """Takes note of what a trial's job has reported, and of its end."""
        trial, number, job, reported = running
        code = job.poll()
        _note_name(running)
        try:
            found = trial_job.values(self._directory(number), self._asked.metric)
        except RunError as error:
            say(f"{error}; trial {number} is looked at again")
            return
        for step, value in found:
            if step not in reported:
                reported.add(step)
                trial.report(value, step)
        if code is None:
            if trial.should_prune() and job.end():
                self._tell(running, None, self._optuna.trial.TrialState.PRUNED)
            return
        if code:
            self._failed(running, f"its job {how_ended(code)}")
        elif not found:
            self._failed(
                running,
                f"its job has reported no {self._asked.metric}; metrics of evaluations need "
                "--data.eval, progressive ones a label of 0 and 1",
            )
        elif not math.isfinite(value := found[-1][1]):
            self._failed(running, f"its job's {self._asked.metric} is {value}")
        else:
            self._tell(running, value, None)

    def _tell(self, running: _Running, value: float | None, state: Any) -> None:
        self._running.remove(running)
        self._study.tell(running.trial, value, state=state)
        if value is not None:
            self._failures = 0
            best = self._study.best_value
            say(f"trial {running.number}: {self._asked.metric} {value:.6g}, best {best:.6g}")
        elif state == self._optuna.trial.TrialState.PRUNED:
            say(f"trial {running.number} is given up: others were better by then")

    def _failed(self, running: _Running, why: str) -> None:
        self._tell(running, None, self._optuna.trial.TrialState.FAIL)
        log = self._plan.log_dir / f"{running.number:04}.log"
        say(f"trial {running.number} has failed: {why}; see {log}")
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            raise RunError(f"{self._failures} trials in a row have failed; see {log}")


def _locked(storage: pathlib.Path) -> IO[str]:
    """A file next to the storage, which this process alone has open."""
    storage.parent.mkdir(parents=True, exist_ok=True)
    lock = storage.with_name(storage.name + ".used").open("w")  # Optuna has .lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise UserError(f"another cloud.tune uses {storage}; wait for its end") from None
    return lock


def _note_name(running: _Running) -> None:
    """Keeps the name of a trial's job, by which another process can follow it."""
    trial, name = running.trial, running.job.name
    if name and trial.user_attrs.get(_JOB) != name:
        trial.set_user_attr(_JOB, name)
