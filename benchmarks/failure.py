"""What a benchmark ends with where it cannot continue; nothing needs to be installed for it."""


class Failed(Exception):  # noqa: N818 - it is what the benchmark has
    """What went wrong and how to fix it, for a person."""
