"""Names of files that a file states: they may name nothing outside of one directory."""


def is_file_name(name: object) -> bool:
    """Whether a value is the name of a file in a directory, whatever the directory.

    A path is joined of a directory and a name. A name with a separator would leave the directory,
    an absolute one replace it, and behind a NUL the operating system reads no further.

    Args:
        name: What was read.
    """
    return isinstance(name, str) and name not in ("", ".", "..") and not {"/", "\0"} & set(name)
