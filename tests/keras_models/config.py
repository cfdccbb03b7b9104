"""The config of one of the models, whose name is in the environment."""

import os

import tfps
from tests.keras_models.cases import ALL

CASE = "TFPS_KERAS_CASE"
IS_THERE = "TFPS_KERAS_IS_THERE"  # hands over the model, not the function that makes it


def get_config() -> tfps.Experiment:
    """An experiment that trains the model in the records' order, as `fit` does."""
    [case] = (each for each in ALL if each.name == os.environ[CASE])
    model = case.build() if os.environ.get(IS_THERE) else case.build
    task = tfps.task_of(model, case.label, case.features)
    train = tfps.Train(batch_size=case.batch_size, epochs=case.epochs)
    return tfps.Experiment(case.name, task, data=tfps.Data(shuffle_buffer=0), train=train)
