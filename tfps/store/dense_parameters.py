"""The dense parameters of a model on the ps, with their slots."""

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfps.cluster.fetching import fetched
from tfps.optimizers.update_rule import RowUpdate, Tensors, Update, UpdateRule
from tfps.store.layout import DenseLayout
from tfps.store.messages import EXACT, Wire, Writes
from tfps.store.mutex import Mutex
from tfps.store.partitioned_variable import PartitionedVariable, TensorSlice
from tfps.store.run_state import LearningRates, rules_by_part


class DenseParameters:
    """One flat variable per ps: one read and one write per ps and step, whatever the model.

    Reads are never torn: TensorFlow hands out a variable's buffer as it is and lets an update that
    finds it in use write to a new one. A push is applied to a part as a whole, one after the other:
    by a fused kernel, which holds the locks of the variable and its slots, or else under a mutex.
    """

    def __init__(
        self,
        layout: DenseLayout,
        devices: Sequence[str],
        rule: UpdateRule,
        initial: np.ndarray,
        decays: Sequence[bool],
        wire: Wire = EXACT,
        rates: LearningRates | None = None,
    ):
        self.layout, self._devices, self.rule = layout, devices, rule
        self._rules = rules_by_part(rule, rates, len(devices))
        self._wire = wire
        self._buffer = PartitionedVariable(
            "dense",
            (layout.total,),
            layout.bounds,
            devices,
            lambda part: tf.Variable(initial[slice(*layout.bounds(part))], trainable=False),
            rule.slots,
        )
        self._decay_of = decays
        self._decays = any(decays)
        self._decayed: list[tf.Variable] = []
        if self._decays and not all(decays):
            for part, device in enumerate(devices):
                with tf.device(device):
                    mask = layout.spread(part, decays)
                    self._decayed.append(tf.Variable(mask, trainable=False))
        mutexes = [Mutex("dense", device) for device in devices]
        self._merge, self._change = (
            [mutex.guard(functools.partial(change, part)) for part, mutex in enumerate(mutexes)]
            for change in (self._merged, self._changed)
        )

    def read_part(self, part: int) -> tf.Tensor:
        """A part's values as they travel, `[n]`; under the device of its ps."""
        variable = self._buffer.parts[part]
        value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32)
        return self._wire.send(value)

    def joined(self, parts: Tensors) -> list[tf.Tensor]:
        """Every variable's value, from what `read_part` gave of each ps, on a worker."""
        if not parts:
            return []
        received = [self._wire.receive(part) for part in parts]
        return self.layout.unflatten(self.layout.join(received))

    def pull_with_slots(self) -> list[tf.Tensor]:
        received: list[list[tf.Tensor]] = []
        for part, device in enumerate(self._devices):
            with tf.device(device):
                sent = [self._wire.send(x.read_value()) for x in self._buffer.variables(part)]
            received.append([self._wire.receive(value) for value in sent])
        return [self.layout.join(parts) for parts in zip(*received, strict=True)]

    def stepped(self, values: Tensors, gradients: Tensors, step: tf.Tensor) -> list[tf.Tensor]:
        """What a step on a worker makes of what `pull_with_slots` returned."""
        rule = self._rules[0]
        buffer, *slots = values
        if self._decays:
            decays = self.layout.each([float(decays) for decays in self._decay_of])
            buffer -= rule.decay(step) * decays * buffer
        flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
        return rule.sparse(RowUpdate(buffer, slots, flat, step))

    def send_increments(
        self, before: Tensors, after: Tensors, steps: int | tf.Tensor
    ) -> list[list[tf.Tensor]]:
        """What steps on a worker add to the buffer and its slots, for each ps."""
        added = self.rule.increments(before, after, tf.cast(steps, tf.float32))
        cut = [self.layout.cut(self._wire.send(value)) for value in added]
        return [list(parts) for parts in zip(*cut, strict=True)]

    def merge(self, part: int, sent: Tensors, steps: int | tf.Tensor) -> list[tf.Tensor]:
        """Adds a worker's increments to a part; under the device of its ps."""
        added = [tf.cast(value, tf.float32) for value in sent]
        return [self._merge[part](added, tf.cast(steps, tf.float32))]

    def send(self, gradients: Tensors) -> list[tf.Tensor]:
        """The variables' gradients as they travel, `[n]` for each ps."""
        flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
        return self.layout.cut(self._wire.send(flat))

    def pieces(self, gradients: Tensors) -> list[list[tf.Tensor]]:
        """The same in pieces to be laid end to end; none for a model without variables."""
        if not gradients:
            return []
        if self.layout.parts > 1:
            return [[part] for part in self.send(gradients)]
        return [[self._wire.send(tf.reshape(gradient, [-1])) for gradient in gradients]]

    def apply(
        self, part: int, sent: tf.Tensor, step: tf.Tensor, scale: tf.Tensor | None = None
    ) -> Writes:
        """Applies a gradient to a part; under the device of its ps."""
        gradient = tf.cast(sent, tf.float32)
        if self._decays or not self.rule.fused:
            return [self._change[part](gradient, step, scale)]
        rule = self._rules[part].scaled(scale)
        return rule.dense(self._buffer.update(part, gradient, step))

    def read(self) -> list[np.ndarray]:
        flat = self.layout.join([part.read_value() for part in self._buffer.parts])
        return [fetched(value) for value in self.layout.unflatten(flat)]

    def slices(self) -> list[TensorSlice]:
        return self._buffer.slices()

    def _merged(
        self, part: int, added: list[tf.Tensor], steps: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        variables = self._buffer.variables(part)
        values = [variable.read_value() for variable in variables]
        merged = self.rule.merged(values, added, steps)
        return tf.constant(True), [
            variable.assign(value, read_value=False)
            for variable, value in zip(variables, merged, strict=True)
        ]

    def _changed(
        self, part: int, gradient: tf.Tensor, step: tf.Tensor, scale: tf.Tensor | None
    ) -> tuple[tf.Tensor, list[tf.Operation]]:
        rule = self._rules[part].scaled(scale)
        update = self._buffer.update(part, gradient, step)
        writes = [self._decay(part, rule, update)] if self._decays else []
        with tf.control_dependencies(writes):
            return tf.constant(True), rule.dense(update)

    def _decay(self, part: int, rule: UpdateRule, update: Update) -> tf.Operation:
        value = update.variable.read_value()
        if self._decayed:
            value = tf.where(self._decayed[part], value, 0.0)
        return tf.raw_ops.ResourceApplyGradientDescent(
            var=update.variable.handle, alpha=rule.decay(update.step), delta=value
        )
