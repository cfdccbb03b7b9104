"""Callbacks as people publish them for Keras's `fit`, who have not heard of tfps."""

import json
import math

import keras


class CosineWarmRestarts(keras.callbacks.Callback):
    """Lets the learning rate fall along a cosine, again and again, in ever longer cycles."""

    def __init__(self, eta_max, eta_min=0.0, cycle=2, growth=2):
        super().__init__()
        self.eta_max, self.eta_min, self.growth = eta_max, eta_min, growth
        self.cycle, self.since_restart = cycle, 0

    def on_train_begin(self, logs=None):
        self.model.optimizer.learning_rate.assign(self.eta_max)

    def on_epoch_end(self, epoch, logs=None):
        self.since_restart += 1
        if self.since_restart == self.cycle:
            self.cycle, self.since_restart = self.cycle * self.growth, 0
        share = 0.5 * (1 + math.cos(math.pi * self.since_restart / self.cycle))
        self.model.optimizer.learning_rate = self.eta_min + share * (self.eta_max - self.eta_min)


class StopAtThreshold(keras.callbacks.Callback):
    """Ends the training as soon as a metric is good enough."""

    def __init__(self, metric, below):
        super().__init__()
        self.metric, self.below = metric, below

    def on_epoch_end(self, epoch, logs=None):
        if (value := (logs or {}).get(self.metric)) is not None and value < self.below:
            print(f"epoch {epoch + 1}: {self.metric} {value:.4f} is good enough")
            self.model.stop_training = True


class JsonLines(keras.callbacks.Callback):
    """Writes a line of JSON for each epoch, with its learning rate."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_train_begin(self, logs=None):
        self.file = open(self.path, "w", buffering=1)  # noqa: SIM115 - until the training ends

    def on_epoch_begin(self, epoch, logs=None):
        self.rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def on_epoch_end(self, epoch, logs=None):
        line = {"epoch": epoch, "of": self.params["epochs"], "lr": self.rate, **(logs or {})}
        self.file.write(json.dumps(line) + "\n")

    def on_train_end(self, logs=None):
        self.file.close()
