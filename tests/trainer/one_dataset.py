"""Rows as one dataset."""

from typing import Any

from tfps.data.manifest import Manifest
from trainer.datasets import preparation as program


def prepare(
    get_experiment: Any,
    inputs: Any,
    directory: str,
    shards: int,
    name: str = "",
    overwrite: bool = False,
    shuffle_seed: int | None = None,
    **others: Any,
) -> Manifest:
    """What `trainer.prepare` writes without `--split`."""
    [written] = program.prepare(
        get_experiment,
        inputs,
        program.Output(directory, shards, name, overwrite),
        seed=shuffle_seed or 0,
        shuffle=shuffle_seed is not None,
        **others,
    )
    return written
