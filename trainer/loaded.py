"""Loads what every task of a training needs; tasks of `cloud.local` are forks that have it."""

import importlib
import os

from tfps.storage import tf_settings

# What `trainer.task` sets before TensorFlow loads. All tasks keep blocks: which of them are
# workers is not known yet.
os.environ["GRPC_FAIL_FAST"] = "use_caller"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
tf_settings.apply()
tf_settings.keep_blocks()

for _module in (
    "trainer.console.quiet_tensorflow",  # first: it loads TensorFlow
    "trainer.chief.preflight",
    "trainer.chief.run",
    "trainer.evaluator",
    "trainer.replica",
):
    importlib.import_module(_module)
