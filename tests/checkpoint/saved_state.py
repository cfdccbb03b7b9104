"""What is compared of a store, what changes it, and how it is saved."""

import posixpath
import threading

import numpy as np

from tfps.checkpoint.directory import OldCheckpoints, Retention
from tfps.checkpoint.saver import Saver
from tfps.cluster.monitor import TaskMonitor
from tfps.cluster.ps_calls import PsCalls
from tfps.evaluation.history import Evaluations
from tfps.job_dir import JobDir
from tfps.leases.queue import QueueState

DATA = ({"records": 100},)
PATIENCE = 60.0


def values(store):
    """What every ps holds, piece by piece."""
    return [slice_.variable.numpy() for slice_ in store.slices()]


def whole(store):
    """Every logical tensor of a store, slots included."""
    tensors = {}
    for slice_ in sorted(store.slices(), key=lambda slice_: slice_.first):
        tensors.setdefault(slice_.name, []).append(slice_.variable.numpy())
    return {name: np.concatenate(parts) for name, parts in tensors.items()}


def assert_equal(before, after):
    """Bit for bit."""
    assert set(before) == set(after)
    for name, tensor in before.items():
        assert np.array_equal(tensor, after[name]), name


def train(trainer, epoch):
    """Trains one epoch, whichever."""
    leases = trainer.queue(epochs=epoch + 1, state=QueueState(epoch=epoch))
    trainer.coordinator.train(leases, lambda: False, lambda progress: None)


def saver_of(directory, store, in_background=True, largest_increment=0.3, last=9):
    """A saver that keeps so many of the last checkpoints."""
    evaluations = Evaluations(JobDir(posixpath.dirname(directory.path)))
    old = OldCheckpoints(directory, Retention(last), evaluations)
    calls = PsCalls(TaskMonitor({}), PATIENCE)
    return Saver(directory, old, store, calls, in_background, largest_increment)


def save(saver, epoch, is_full=False, since=None):
    """The next checkpoint."""
    committed = []
    saver.begin(QueueState(epoch), DATA, lambda: None, committed.append, is_full, since=since)
    saver.finish()
    return committed[0]


class Gate:
    """A save that waits before its commit, as a slow disk would let it."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self):
        self.reached.set()
        assert self.opened.wait(PATIENCE)
