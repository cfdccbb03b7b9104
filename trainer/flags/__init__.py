"""Flags that several programs have, and what they and the environment say together."""
