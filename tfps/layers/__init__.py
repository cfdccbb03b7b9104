"""Keras layers and initializers for users."""
