"""Loads what every task of a training needs; tasks of `cloud.local` are forks that have it."""

import importlib
import os

from absl import app

from tfps.storage import tf_settings

_MODULES = (
    "trainer.console.quiet_tensorflow",  # first: it loads TensorFlow
    "trainer.chief.preflight",
    "trainer.chief.run",
    "trainer.evaluator",
    "trainer.replica",
)

# What `trainer.task` sets before TensorFlow loads. Blocks of gs:// are not kept, as workers would:
# the other tasks would then read for seconds what a file held before.
os.environ["GRPC_FAIL_FAST"] = "use_caller"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf_settings.apply()


def _load() -> None:
    call_after_init = app.call_after_init
    # TensorFlow would count GPUs as a program begins, which is before a task has a log, and has
    # said which of them it may see. The count is for TensorFlow's own tests.
    app.call_after_init = lambda callback: None
    try:
        for module in _MODULES:
            importlib.import_module(module)
    finally:
        app.call_after_init = call_after_init


_load()
