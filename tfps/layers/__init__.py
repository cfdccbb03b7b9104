"""Keras layers for users."""
