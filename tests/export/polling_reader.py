"""Loads each new version of a model as soon as it is there, as a server does, and predicts.

    python polling_reader.py BASE LAST

ends once it has loaded version LAST, and prints the versions that it has loaded; then, in a line of
their own, those that were deleted while it loaded them.
"""

import sys
import time

import tensorflow as tf

PATIENCE = 300.0  # for the next version


def newest(base: str) -> int:
    """The greatest number that names a directory with a graph in it."""
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(base)] if exists(base) else []
    numbers = [int(name) for name in names if name.isdecimal()]
    return max((n for n in numbers if exists(f"{base}/{n}/saved_model.pb")), default=0)


def exists(path: str) -> bool:
    return bool(tf.io.gfile.exists(path))


def predicts(path: str) -> bool:
    """Whether a version gives predictions; if not, it is deleted by now.

    Anything else that a version fails with is one that should not have been there yet.
    """
    try:
        model = tf.saved_model.load(path)
    except (OSError, tf.errors.OpError):
        if exists(f"{path}/saved_model.pb"):
            raise
        return False
    outputs = model.signatures["serving_default"](
        numbers=tf.zeros([2, 4]), token=tf.constant([0, 19], tf.int64)
    )
    tf.debugging.assert_all_finite(outputs["predictions"], "half a model")
    return True


def main(base: str, last: int) -> None:
    loaded, deleted = [0], []
    deadline = time.monotonic() + PATIENCE
    print("polling", flush=True)
    while loaded[-1] < last:
        assert time.monotonic() < deadline, f"no version {last}"
        number = newest(base)
        if number == loaded[-1]:
            continue
        if predicts(f"{base}/{number}"):
            loaded.append(number)
        else:
            deleted.append(number)
        deadline = time.monotonic() + PATIENCE
    print(*loaded[1:])
    print(*deleted)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
