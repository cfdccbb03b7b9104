"""The trained model as a Keras model that holds its parameters itself."""

import keras
import numpy as np

from tfps.experiment.task import Task
from tfps.model.builder import build_model
from tfps.model.stateless_model import StatelessModel
from tfps.store.parameter_store import ParameterStore


def trained_model(task: Task, model: StatelessModel, store: ParameterStore) -> keras.Model:
    """The task's own model with the store's parameters, all of them in this process's memory.

    Args:
        task: The task.
        model: Its model, whose parameters the store holds.
        store: The parameters.
    """
    values = _values(model, store)
    trained = build_model(task, model.seed)
    for variable in trained.variables:
        if variable.dtype == "float32":
            variable.assign(values[variable.path])
    return trained


def _values(model: StatelessModel, store: ParameterStore) -> dict[str, np.ndarray]:
    """Every parameter by the path of its variable."""
    values = {}
    for variables, read in ((model.dense, store.read_dense()), (model.state, store.read_state())):
        values.update({v.path: x for v, x in zip(variables, read, strict=True)})
    for index, table in enumerate(model.tables):
        values[table.name] = store.read_table(index)
    return values
