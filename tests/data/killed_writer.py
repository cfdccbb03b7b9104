"""Writes a new dataset in place of the one in a directory, and is killed before the last act.

    python -m tests.data.killed_writer DIRECTORY before|after

`before`: before the manifest of the new one is written; `after`: before what the old one had goes.
"""

import os
import signal
import sys

import tensorflow as tf

from configs.smoke import Smoke
from tfps.data import manifest
from tfps.data.dataset_writer import DatasetWriter


def die(*_: object) -> None:
    """Ends this process as a lost machine does."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Writes, and dies."""
    directory, moment = sys.argv[1:]
    writer = DatasetWriter.open(directory, "smoke", 1, Smoke().schema(), overwrite=True)
    writer.write(0, b"record")
    if moment == "before":
        manifest.write = die
    else:
        tf.io.gfile.remove = die
    writer.finish()


if __name__ == "__main__":
    main()
