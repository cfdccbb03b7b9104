"""Runs kept by Weights & Biases, as its own WANDB_… variables say."""

import os
import uuid
from collections.abc import Mapping
from typing import Any

from tfps.errors import UserError

_STEP = "updates"  # what curves are drawn over: a run may go back, its own steps cannot
_CONNECT_SECONDS = 60.0


class WandbTracker:
    """Keeps a run in Weights & Biases."""

    name = "wandb"

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError(
                "--track=wandb needs Weights & Biases: pip install 'tfps[wandb]'"
            ) from None
        self._library = wandb
        self._run: Any = None

    def connect(self, experiment: str, title: str, known: str | None) -> str:
        library = self._library
        run = known or uuid.uuid4().hex
        self._run = library.init(
            project=os.environ.get("WANDB_PROJECT") or experiment,
            id=run,
            name=title,
            resume="allow",
            settings=library.Settings(
                silent=True,
                console="off",  # the terminal is the job's
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                init_timeout=_CONNECT_SECONDS,
            ),
        )
        self._run.define_metric(_STEP)
        self._run.define_metric("*", step_metric=_STEP)
        return run

    def describe(self, settings: Mapping[str, str]) -> None:
        self._run.config.update(dict(settings), allow_val_change=True)

    def log(self, step: int, at: float, values: Mapping[str, float]) -> None:
        self._run.log({_STEP: step, "at": at, **values})

    def end(self, has_finished: bool) -> None:
        self._run.finish(exit_code=0 if has_finished else 1)
