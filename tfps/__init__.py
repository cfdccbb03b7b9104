"""Keras 3 models on parameter servers with stock TensorFlow."""
