"""Bytes that a step must send between a worker and the ps."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from tfps.model.inputs import batch_records
from tfps.model.stateless_model import Features, StatelessModel
from tfps.store.layout import StoreLayout
from tfps.store.messages import Wire

_VALUE = 4  # bytes of a float32


@dataclasses.dataclass(frozen=True)
class WireBytes:
    """What crosses the wire in some steps, at least.

    A step pulls and pushes every dense parameter and every distinct row, both in the wire's dtype,
    and the state that training changes in float32; each worker pulls once what no step changes. The
    id of a distinct row travels once: the push finds it where the pull has left it. TensorFlow adds
    some hundred bytes per tensor.
    """

    steps: int
    examples: int
    rows: int
    dense_bytes: int
    table_bytes: int
    fixed_bytes: int  # of the state that no step changes, by worker; no part of the others

    @property
    def per_example(self) -> float:
        return (self.dense_bytes + self.table_bytes) / self.examples

    @classmethod
    def of(
        cls,
        model: StatelessModel,
        layout: StoreLayout,
        wire_dtype: str,
        batches: Iterable[tuple[Features, Features]],
        examples_per_record: int = 1,
    ) -> "WireBytes":
        """Counts what training on some batches sends."""
        value = Wire(wire_dtype).value_bytes
        dense = layout.dense.total * value * 2 + layout.state.changing.total * _VALUE * 2
        steps, examples, rows, table_bytes = 0, 0, 0, 0
        for features, labels in batches:
            steps += 1
            examples += int(batch_records(features, labels)) // examples_per_record
            for group, asked in zip(layout.groups, _ids_of(layout, model, features), strict=True):
                distinct = len(np.unique(asked))
                rows += distinct
                values = group.layout.dim + group.gradients.width
                row_bytes = values * value + group.layout.id_dtype.size
                table_bytes += distinct * row_bytes
        fixed = layout.state.fixed.total * _VALUE
        return cls(steps, examples, rows, dense * steps, table_bytes, fixed)


def _ids_of(layout: StoreLayout, model: StatelessModel, features: Features) -> Sequence[np.ndarray]:
    """For every group, the ids in the group of all lookups of a batch."""
    found: list[list[np.ndarray]] = [[np.zeros([0], np.int64)] for _ in layout.groups]
    for lookup in model.lookups(features, training=True):
        group, index = layout.group_of[lookup.table]
        asked = layout.groups[group].layout.ids_in_group([index], [lookup.ids])
        found[group].append(asked.ids.numpy().astype(np.int64))
    return [np.concatenate(ids) for ids in found]
