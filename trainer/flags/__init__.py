"""Flags that several programs share, read together with the environment."""
