"""Predicts the rows of a CSV file by Keras's `predict`: `keras_predict MODEL ROWS OUTPUT`."""

import sys

import keras
import numpy as np
import tensorflow as tf

_BATCH = 4096  # as that of trainer.predict


def main(model: str, rows: str, output: str) -> None:
    data = tf.data.experimental.make_csv_dataset(
        rows,
        _BATCH,
        column_defaults=[tf.int64, tf.int64, tf.float32],
        label_name="liked",
        num_epochs=1,
        shuffle=False,
    )
    inputs = data.map(lambda features, _: ((features["user"], features["item"]),))
    predictions = keras.saving.load_model(model).predict(inputs, verbose=0)
    np.savetxt(output, predictions, "%.9g", header="prediction", comments="")


if __name__ == "__main__":
    main(*sys.argv[1:])
