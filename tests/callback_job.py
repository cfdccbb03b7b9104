"""The smoke config with callbacks, whose chief leaves what they hear in a file."""

import dataclasses
import os

import keras

from configs import smoke
from tests.strangers_callbacks import CosineWarmRestarts, JsonLines

PATH = "TFPS_TESTS_CALLBACK_LOG"


def get_config():
    return dataclasses.replace(smoke.get_config(), callbacks=callbacks)


def callbacks(task):
    """What sets the learning rate, what looks at the metrics, and what writes down both."""
    return [
        CosineWarmRestarts(task.learning_rate, eta_min=0.001),
        keras.callbacks.EarlyStopping("val_auc", patience=9),
        JsonLines(os.environ[PATH]),
    ]
