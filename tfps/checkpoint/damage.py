"""Why a committed checkpoint cannot be used."""


class Damage(Exception):  # noqa: N818 - it is what a checkpoint has
    """A file of a checkpoint is missing, truncated or altered; the message names it and says how.

    Unlike a checkpoint that does not fit the run, it is no fault of whoever started the run: the
    checkpoint before it may do.
    """
