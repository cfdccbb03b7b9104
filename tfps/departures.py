"""Ps that are about to go: they say so, and wait until the chief has saved what they hold."""

import posixpath

import tensorflow as tf


class Departures:
    """`JOB_DIR/leaving`: a file for each ps that was told to end, until the chief has saved.

    Files, since a task that serves cannot call its chief.
    """

    def __init__(self, job_dir: str):
        self._path = posixpath.join(job_dir, "leaving")

    def announce(self, ps: str) -> None:
        """Says that a ps, such as "ps 0", will go."""
        tf.io.gfile.makedirs(self._path)
        with tf.io.gfile.GFile(self._file(ps), "w") as file:
            file.write("")

    def withdraw(self, ps: str) -> None:
        """Lets a ps go: its parameters are saved."""
        try:
            tf.io.gfile.remove(self._file(ps))
        except tf.errors.NotFoundError:  # the ps itself did, when it began anew
            return

    def is_announced(self, ps: str) -> bool:
        """Whether a ps has said that it will go, and waits."""
        return bool(tf.io.gfile.exists(self._file(ps)))

    def announced(self) -> list[str]:
        """All that have."""
        if not tf.io.gfile.isdir(self._path):
            return []
        names = sorted(name.rstrip("/") for name in tf.io.gfile.listdir(self._path))
        return [name.replace("-", " ") for name in names]

    def _file(self, ps: str) -> str:
        return posixpath.join(self._path, ps.replace(" ", "-"))
