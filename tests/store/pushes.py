"""Pushes and pulls as a worker does, to and from the parts of what a ps holds."""

import tensorflow as tf


def push(holder, sent, devices, steps):
    """Applies what `send` of dense parameters, or of a group of tables, gave for each part."""
    for part, device in enumerate(devices):
        with tf.device(device):
            holder.apply(part, sent[part], steps[part])


def pull_dense(dense, devices):
    """Every dense variable's value."""
    parts = []
    for part, device in enumerate(devices):
        with tf.device(device):
            parts.append(dense.read_part(part))
    return dense.joined(parts)
