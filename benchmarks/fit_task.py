"""Trains a config's task by Keras's `fit`, in one process: `python -m benchmarks.fit_task`.

The same records, model, loss and optimizer as tfps has. What it prints is a line of JSON: examples
per second, and after every epoch the records trained, the seconds of training and the AUC on the
evaluation records.
"""

import trainer.console.quiet_tensorflow  # noqa: F401  # isort: skip

import argparse
import json
import sys
import time
from typing import Any

import keras
import numpy as np

from benchmarks.arrays import read_arrays
from tfps.data import manifest as manifests
from tfps.errors import UserError
from tfps.experiment import field_flags, overrides
from tfps.experiment.experiment import Experiment
from tfps.experiment.metrics import auc
from tfps.experiment.task import Task

_PREDICTED_AT_ONCE = 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--config", required=True, help="of a task with one label, yes or no")
    fields, rest = field_flags.split(sys.argv[1:])
    experiment = overrides.apply(overrides.load(parser.parse_args(rest).config), fields)
    trained = _Records(experiment, experiment.data.train, "--data.train")
    evaluated = _Records(experiment, experiment.data.eval, "--data.eval")
    print(json.dumps(fit(experiment, trained, evaluated)))


class _Records:
    """A dataset in memory.

    Attributes:
        x: The features by name.
        y: The label.
    """

    def __init__(self, experiment: Experiment, directory: str, flag: str):
        task = experiment.task
        (label,) = task.targets()
        arrays = read_arrays(manifests.read(directory, flag), task.schema())
        self.y = arrays[label.name]
        self.x = {feature.name: arrays[feature.name] for feature in task.features()}


def fit(experiment: Experiment, trained: _Records, evaluated: _Records) -> dict[str, Any]:
    """Trains every epoch; returns what `benchmarks.modes` keeps of a run.

    Raises:
        UserError: If a table has another optimizer than the dense parameters.
    """
    task, train = experiment.task, experiment.train
    if type(task).table_optimizer is not Task.table_optimizer:
        raise UserError("fit has one optimizer, but the task has table_optimizer()")
    keras.utils.set_random_seed(train.seed)
    model = task.build_model()
    model.compile(optimizer=task.optimizer(), loss=task.loss())
    seconds, points = 0.0, []
    for epoch in range(train.epochs):
        began = time.monotonic()
        model.fit(trained.x, trained.y, train.batch_size, epochs=1, verbose=0)
        seconds += time.monotonic() - began
        outputs = model.predict(evaluated.x, batch_size=_PREDICTED_AT_ONCE, verbose=0)
        found = auc(evaluated.y, np.asarray(task.predictions(outputs)))
        points.append([(epoch + 1) * len(trained.y), seconds, found])
    return {"examples_per_second": points[-1][0] / seconds, "points": points}


if __name__ == "__main__":
    main()
