"""Classifiers of small images, and a network that draws them again."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from tests.keras_models.case import DRAWN, Case, inputs_of
from tests.keras_models.signals import truth
from tfps.data.feature import Feature

_KIND = "vision"

_SIDE, _CLASSES = 12, 6
_GRAY = (Feature("image", "float32", (_SIDE, _SIDE, 1)),)
_COLOR = (Feature("image", "float32", (_SIDE, _SIDE, 3)),)
_FILE = (Feature("file", "string"),)


def _drawn(
    generator: np.random.Generator, count: int, channels: int
) -> tuple[np.ndarray, np.ndarray]:
    """Images with values from 0 to 255, equal when mirrored but for noise, and their classes."""
    blocks = truth("what classes look like", _CLASSES, 4, 4, channels)
    patterns = np.repeat(np.repeat(blocks + blocks[:, :, ::-1], 3, axis=1), 3, axis=2)
    classes = generator.integers(0, _CLASSES, count)
    noise = generator.standard_normal((count, _SIDE, _SIDE, channels))
    images = 128.0 + 40.0 * patterns[classes] + 60.0 * noise
    return np.clip(images, 0.0, 255.0).astype(np.float32), classes


def _gray(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    images, classes = _drawn(generator, count, 1)
    return {"image": images, "digit": classes}


def _convnet() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((_SIDE, _SIDE, 1), name="image"),
            keras.layers.Rescaling(1.0 / 255),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(_CLASSES, activation="softmax"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _one_hot(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    images, classes = _drawn(generator, count, 3)
    return {"image": images, "object": np.eye(_CLASSES, dtype=np.float32)[classes]}


def _residual_block(inputs: Any, filters: int, strides: int) -> Any:
    """Two normalized convolutions, added to what came in, which is projected where sizes differ."""
    hidden = keras.layers.Conv2D(filters, 3, strides, "same", use_bias=False)(inputs)
    hidden = keras.layers.BatchNormalization(momentum=0.9)(hidden)
    hidden = keras.layers.ReLU()(hidden)
    hidden = keras.layers.Conv2D(filters, 3, padding="same", use_bias=False)(hidden)
    hidden = keras.layers.BatchNormalization(momentum=0.9)(hidden)
    if strides > 1:
        inputs = keras.layers.Conv2D(filters, 1, strides, use_bias=False)(inputs)
        inputs = keras.layers.BatchNormalization(momentum=0.9)(inputs)
    return keras.layers.ReLU()(keras.layers.Add()([hidden, inputs]))


def _small_resnet() -> keras.Model:
    image = inputs_of(_COLOR)["image"]
    hidden = keras.layers.RandomFlip("horizontal")(image)
    hidden = keras.layers.Rescaling(1.0 / 127.5, -1.0)(hidden)
    hidden = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(hidden)
    for filters, strides in ((8, 1), (16, 2)):
        hidden = _residual_block(hidden, filters, strides)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    model = keras.Model(image, keras.layers.Dense(_CLASSES)(hidden))
    rate = keras.optimizers.schedules.CosineDecay(0.05, decay_steps=400, alpha=0.01)
    model.compile(
        optimizer=keras.optimizers.SGD(rate, momentum=0.9, nesterov=True),
        loss=keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        metrics=[keras.metrics.CategoricalAccuracy(name="accuracy")],
    )
    return model


class Patches(keras.layers.Layer):
    """Squares that an image is cut into, as rows `[batch, patches, values]`."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size

    def call(self, images: Any) -> Any:
        patches = ops.image.extract_patches(images, self.size)
        _, high, wide, values = patches.shape
        return ops.reshape(patches, (-1, high * wide, values))


class Mixer(keras.layers.Layer):
    """A network across patches, and another across the values of each."""

    def __init__(self, patches: int, dim: int, dropout: float):
        super().__init__()
        self.across_patches, self.across_values = (
            keras.Sequential(
                [
                    keras.layers.Dense(size, activation="gelu"),
                    keras.layers.Dense(size),
                    keras.layers.Dropout(dropout),
                ]
            )
            for size in (patches, dim)
        )
        self.norms = [keras.layers.LayerNormalization() for _ in range(2)]

    def call(self, inputs: Any, training: bool = False) -> Any:
        turned = ops.transpose(self.norms[0](inputs), (0, 2, 1))
        mixed = self.across_patches(turned, training=training)
        hidden = inputs + ops.transpose(mixed, (0, 2, 1))
        return hidden + self.across_values(self.norms[1](hidden), training=training)


def _colored(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    images, classes = _drawn(generator, count, 3)
    return {"image": images, "object": classes}


def _mlp_mixer() -> keras.Model:
    image = inputs_of(_COLOR)["image"]
    hidden = keras.layers.Dense(32)(Patches(3)(keras.layers.Rescaling(1.0 / 255)(image)))
    for _ in range(2):
        hidden = Mixer(patches=(_SIDE // 3) ** 2, dim=32, dropout=0.1)(hidden)
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    model = keras.Model(image, keras.layers.Dense(_CLASSES)(hidden))
    model.compile(
        optimizer=keras.optimizers.AdamW(0.003, weight_decay=1e-3, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            keras.metrics.SparseTopKCategoricalAccuracy(2, name="top_2"),
        ],
    )
    return model


def _encoded(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    images, classes = _drawn(generator, count, 3)
    writers = (tf.io.encode_png, tf.io.encode_jpeg)
    files = [writers[n % 2](image).numpy() for n, image in enumerate(images.astype(np.uint8))]
    return {"file": np.array(files, object), "object": classes}


class DecodedImages(keras.layers.Layer):
    """Images `[batch, side, side, 3]`, values from 0 to 255, of the bytes of JPEG and PNG files."""

    def __init__(self, side: int):
        super().__init__()
        self.side = side

    def call(self, files: Any) -> Any:
        shape = tf.TensorSpec((self.side, self.side, 3))
        return tf.map_fn(self._decoded, files, fn_output_signature=shape)

    def _decoded(self, file: Any) -> Any:
        image = tf.io.decode_image(file, channels=3, expand_animations=False)
        return tf.image.resize(image, (self.side, self.side))


def _files_decoded() -> keras.Model:
    file = inputs_of(_FILE)["file"]
    hidden = DecodedImages(_SIDE)(file)
    hidden = keras.layers.RandomFlip("horizontal")(hidden)
    hidden = keras.layers.Lambda(lambda image: image / 255.0)(hidden)
    hidden = keras.layers.Conv2D(16, 3, strides=2, activation="relu")(hidden)
    hidden = keras.layers.Dense(32, activation="relu")(keras.layers.Flatten()(hidden))
    model = keras.Model(file, keras.layers.Dense(_CLASSES, activation="softmax")(hidden))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _twice(generator: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    images = _drawn(generator, count, 1)[0] / 255.0
    return {"image": images, "again": images}


class Sampling(keras.layers.Layer):
    """Draws from normal distributions, and adds to the loss how far they are from the standard."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, mean: Any, log_variance: Any) -> Any:
        divergence = 1.0 + log_variance - ops.square(mean) - ops.exp(log_variance)
        self.add_loss(-0.5e-3 * ops.mean(ops.sum(divergence, axis=1)))
        noise = keras.random.normal(ops.shape(mean), seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_variance) * noise


def _variational_autoencoder() -> keras.Model:
    image = inputs_of(_GRAY)["image"]
    hidden = keras.layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(image)
    hidden = keras.layers.Dense(32, activation="relu")(keras.layers.Flatten()(hidden))
    mean = keras.layers.Dense(4, name="mean")(hidden)
    log_variance = keras.layers.Dense(4, name="log_variance", kernel_initializer="zeros")(hidden)
    code = Sampling(name="sampling")(mean, log_variance)
    half = _SIDE // 2
    hidden = keras.layers.Dense(half * half * 8, activation="relu")(code)
    hidden = keras.layers.Reshape((half, half, 8))(hidden)
    hidden = keras.layers.Conv2DTranspose(8, 3, strides=2, padding="same", activation="relu")(
        hidden
    )
    again = keras.layers.Conv2DTranspose(1, 3, padding="same", activation="sigmoid")(hidden)
    model = keras.Model(image, again)
    model.compile(
        optimizer=keras.optimizers.Adam(0.003),
        loss=keras.losses.MeanSquaredError(),
        metrics=[keras.metrics.MeanAbsoluteError()],
    )
    return model


CASES = (
    Case(
        "convnet",
        _KIND,
        _GRAY,
        Feature("digit", "int64", vocabulary=_CLASSES),
        _gray,
        _convnet,
        tolerance=DRAWN,
    ),
    Case(
        "small_resnet",
        _KIND,
        _COLOR,
        Feature("object", "float32", (_CLASSES,)),
        _one_hot,
        _small_resnet,
        tolerance=DRAWN,
    ),
    Case(
        "mlp_mixer",
        _KIND,
        _COLOR,
        Feature("object", "int64", vocabulary=_CLASSES),
        _colored,
        _mlp_mixer,
        tolerance=DRAWN,
    ),
    Case(
        "files_decoded",
        _KIND,
        _FILE,
        Feature("object", "int64", vocabulary=_CLASSES),
        _encoded,
        _files_decoded,
        tolerance=DRAWN,
    ),
    Case(
        "variational_autoencoder",
        _KIND,
        _GRAY,
        Feature("again", "float32", (_SIDE, _SIDE, 1)),
        _twice,
        _variational_autoencoder,
        is_drawn=True,
        tolerance=0.6,
        on_cluster=0.8,
    ),
)
