"""Checkpoints: written by the ps, made to exist by a commit marker, checked, restored, deleted."""
