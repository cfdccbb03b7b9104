"""Launchers: they start the trainer's tasks and never import TensorFlow."""
