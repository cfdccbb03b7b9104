"""A task's records without what only training needs of them."""

from typing import NoReturn

import keras

from tfps.data.feature import Feature
from tfps.data.row_format import RowFormat
from tfps.experiment.task import Task


class UnlabelledTask(Task):
    """Reads and writes the records of another task without its labels, weight and group.

    It has no model: it is for datasets that are to be predicted.
    """

    def __init__(self, task: Task):
        self._task = task

    def features(self) -> tuple[Feature, ...]:
        """Those of the task."""
        return self._task.features()

    def label(self) -> tuple[Feature, ...]:
        """None."""
        return ()

    def rows(self) -> RowFormat:
        """Those of the task without the columns that are for labels alone."""
        names = [each.name for each in self._task.labels()]
        return self._task.rows().without(names)

    def build_model(self) -> NoReturn:
        """There is none."""
        raise TypeError("records without labels are predicted, not trained")

    def optimizer(self) -> keras.optimizers.Optimizer:
        """That of the task."""
        return self._task.optimizer()
