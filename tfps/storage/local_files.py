"""Files of this machine's file systems, brought to the disk, to outlive a power cut.

It loads no TensorFlow, so that a role may still set its environment.
"""

import os


def write(path: str, content: bytes) -> None:
    """Writes a file to the disk; its name may not be there yet."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_directories(path: str) -> None:
    """Makes a directory and missing parents; their names are on the disk."""
    missing, above = [], os.path.abspath(path)
    while not _is_there(above):
        missing.append(above)
        above = os.path.dirname(above)
    os.makedirs(path, exist_ok=True)
    for made in missing:
        sync(os.path.dirname(made))


def sync(path: str) -> None:
    """Brings a file to the disk, or a directory with its names."""
    file = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def tree(path: str) -> list[str]:
    """Paths of all files and directories in a directory, and its own."""

    def fail(error: OSError) -> None:
        raise error

    found = []
    for directory, _, inside in os.walk(path, onerror=fail):
        found += [*(os.path.join(directory, file) for file in inside), directory]
    return found


def _is_there(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True
