"""The trained model as a Keras model that holds its parameters itself."""

import keras

from tfps.experiment.task import Task
from tfps.export.parameters import WholeParameters, assign_values, values_by_path
from tfps.model.builder import build_model
from tfps.model.stateless_model import StatelessModel


def trained_model(task: Task, model: StatelessModel, parameters: WholeParameters) -> keras.Model:
    """The task's own model with its parameters, all of them in this process's memory."""
    trained = build_model(task, model.seed)
    assign_values(trained, values_by_path(model, parameters))
    return trained
