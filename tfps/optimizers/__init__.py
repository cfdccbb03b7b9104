"""Keras optimizers as update rules on the ps."""
