"""Keras 3 models on parameter servers with stock TensorFlow."""

__version__ = "0.1.0"
