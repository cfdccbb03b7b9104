"""Keras optimizers as update rules on the ps; one file per optimizer."""
