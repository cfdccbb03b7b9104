"""The state of a model on its ps: what no gradient changes, such as BatchNorm statistics."""

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from tfps.cluster.fetching import fetched
from tfps.optimizers.update_rule import Tensors
from tfps.store.layout import DenseLayout, StateLayout
from tfps.store.mutex import Mutex
from tfps.store.partitioned_variable import TensorSlice

_HERE = "/device:CPU:0"  # of the task that runs the closure


class WorkerCopy:
    """A float32 tensor `[count]` that the first closure on a worker fetches and later ones reuse.

    It lies in a variable of the worker's own, known by a name: a closure's graph is the same on all
    workers. A worker that restarts, or is connected to again, has none and fetches it again.
    """

    def __init__(self, fetch: Callable[[], tf.Tensor], count: int):
        self._fetch = fetch
        self._shape = [count]
        self._name = f"tfps_{uuid.uuid4().hex}"  # another store's values are others

    def value(self) -> tf.Tensor:
        """In a closure, outside of its loops: the values, `[count]`."""
        with tf.device(_HERE):
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.float32, shape=self._shape, shared_name=self._name
            )
            is_here = tf.raw_ops.VarIsInitializedOp(resource=handle)

        def find() -> tf.Tensor:
            with tf.device(_HERE):
                return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

        def fetch() -> tf.Tensor:
            fetched = self._fetch()
            with tf.device(_HERE):
                value = tf.identity(fetched)
                tf.raw_ops.AssignVariableOp(resource=handle, value=value)
                return value

        return tf.ensure_shape(tf.cond(is_here, find, fetch), self._shape)


class ModelState:
    """State variables laid end to end, whole, on one ps.

    Several workers change the same state, each from the value that it pulled. Where a step makes
    `kept * old + something` of a variable, a worker pushes the something, and the ps makes the step
    from the value that it has: a moving average stays one, and a counter exact, however stale the
    pull was. Other variables become a mean of what the ps has and what the worker made of it.

    What no step changes, such as a frozen backbone, is no part of a push, and each worker of a
    cluster pulls it once. A variable of the ps holds neighbours that are all of one kind.
    """

    def __init__(
        self, layout: StateLayout, kept: Sequence[float | None], initial: np.ndarray, device: str
    ):
        self._layout, self._device = layout, device
        self.changes = any(layout.changes)
        of_changing = list(itertools.compress(kept, layout.changes))
        self._kept = [factor or 0.0 for factor in of_changing]
        self._is_mixed = [factor is None for factor in of_changing]
        self.is_recurrent = not any(self._is_mixed)
        self._step = Mutex("state", device).guard(self._stepped)
        self._runs = layout.runs
        with tf.device(device):
            self._variables = [
                tf.Variable(initial[run.first : run.first + run.size], trainable=False)
                for run in self._runs
            ]
        pairs = list(zip(self._runs, self._variables, strict=True))
        self._changing = [variable for run, variable in pairs if run.changes]
        self._fixed = [variable for run, variable in pairs if not run.changes]
        self._sizes = [run.size for run in self._runs if run.changes]
        self._copy = WorkerCopy(lambda: self._read(self._fixed, ()), layout.fixed.total)
        self._kept_here: list[tf.Tensor] | None = None

    @contextlib.contextmanager
    def kept_by_worker(self) -> Iterator[None]:
        """While one closure is traced: `pull` finds what is fixed on its worker."""
        # In one process the ps' own variables are as near.
        is_elsewhere = tf.DeviceSpec.from_string(self._device).job == "ps"
        if not self._fixed or not is_elsewhere:
            yield
            return
        self._kept_here = self._layout.fixed.unflatten(self._copy.value())
        try:
            yield
        finally:
            self._kept_here = None

    def pull(self, after: Tensors = ()) -> list[tf.Tensor]:
        fixed = self._kept_here
        if fixed is None:
            fixed = self._pulled(self._layout.fixed, self._fixed, after)
        changing = self._pulled(self._layout.changing, self._changing, after)
        return self._layout.merge(changing, fixed)

    def increment(
        self, before: Tensors, after: Tensors, earlier: tf.Tensor | None = None
    ) -> tf.Tensor:
        """What a step adds to what it keeps of the state, `[n]`; the value, if that is unknown."""
        # With `earlier`, which steps before it of the same pull have added, the sum of all of them.
        new_values, old_values = map(self._layout.changing_of, (after, before))
        added = [
            tf.reshape(new - kept * old, [-1])
            for new, old, kept in zip(new_values, old_values, self._kept, strict=True)
        ]
        total = tf.concat(added, 0)
        if earlier is None:
            return total
        return self._layout.changing.each(self._kept) * earlier + total

    def push(
        self, increment: tf.Tensor, steps: int = 1, share: float | tf.Tensor = 1.0
    ) -> tf.Tensor:
        """Makes steps from the state that the ps has."""
        with tf.device(self._device):
            return self._step(tf.identity(increment), steps, tf.convert_to_tensor(share))

    def add(self, change: tf.Tensor) -> tf.Operation:
        """Adds a change `[n]` that is the mean of those of all who pulled this very state."""
        with tf.device(self._device):
            parts = tf.split(change, self._sizes)
            writes = [
                variable.assign_add(part, read_value=False)
                for variable, part in zip(self._changing, parts, strict=True)
            ]
            return tf.group(*writes)

    def read(self) -> list[np.ndarray]:
        return [fetched(value) for value in self._pulled(self._layout.whole, self._variables, ())]

    def slices(self) -> list[TensorSlice]:
        shape = (self._layout.whole.total,)
        return [
            TensorSlice("state", shape, run.first, run.size, self._device, variable)
            for run, variable in zip(self._runs, self._variables, strict=True)
            if run.size
        ]

    def _pulled(
        self, layout: DenseLayout, variables: Sequence[tf.Variable], after: Tensors
    ) -> list[tf.Tensor]:
        return layout.unflatten(self._read(variables, after)) if variables else []

    def _read(self, variables: Sequence[tf.Variable], after: Tensors) -> tf.Tensor:
        with tf.device(self._device), tf.control_dependencies(after):
            values = [variable.read_value() for variable in variables]
            return values[0] if len(values) == 1 else tf.concat(values, 0)

    def _stepped(
        self, added: tf.Tensor, steps: int, share: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        layout, before = self._layout.changing, self._read(self._changing, ())
        values = layout.each([factor**steps for factor in self._kept]) * before + added
        if not self.is_recurrent:
            mean = (1.0 - share) * before + share * added
            values = tf.where(layout.each(self._is_mixed), mean, values)
        return tf.constant(True), [
            variable.assign(value, read_value=False)
            for variable, value in zip(self._changing, tf.split(values, self._sizes), strict=True)
        ]
