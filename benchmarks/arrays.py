"""A dataset as arrays in memory, for peers that do not read TFRecords."""

import numpy as np

from tfps.data.manifest import Manifest
from tfps.data.record_source import Batching, RecordSource, read_batches
from tfps.data.schema import Schema

_RECORDS_AT_ONCE = 8192


def read_arrays(data: Manifest, schema: Schema) -> dict[str, np.ndarray]:
    """Each feature and label of a dataset as one array, `[records, *shape]`, by name."""
    parts: dict[str, list[np.ndarray]] = {each.name: [] for each in schema.all}
    for shard in data.shards:
        source = RecordSource(data.path_of(shard)).tensors()
        for values, truth in read_batches(source, Batching(schema, _RECORDS_AT_ONCE)):
            for name, value in {**values, **truth}.items():
                parts[name].append(value.numpy())
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}
