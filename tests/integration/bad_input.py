"""A wrong input for the trainer, and where it is made."""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable, Mapping

from cluster_process import trainer_flags
from datasets_on_disk import Datasets

from tfps.data import manifest

CONFIG = """
import dataclasses

import keras

from configs import smoke


@dataclasses.dataclass(frozen=True)
class Bad(smoke.Smoke):
    wrong: str = ""

    def build_model(self):
        if self.wrong != "model":
            return super().build_model()
        other = keras.Input((7,), name="other")
        return keras.Model({"other": other}, keras.layers.Dense(1)(other))

    def loss(self):
        reduction = "none" if self.wrong == "loss" else "sum_over_batch_size"
        return keras.losses.BinaryCrossentropy(from_logits=True, reduction=reduction)

    def metrics(self):
        if self.wrong == "metric":
            return {"skill": lambda labels, predictions: labels @ predictions[:2]}
        return super().metrics()

    def optimizer(self):
        if self.wrong == "average":
            return keras.optimizers.Adam(use_ema=True)
        if self.wrong == "optimizer":
            return keras.optimizers.Nadam()
        return super().optimizer()


def get_config():
    return dataclasses.replace(smoke.get_config(), task=Bad())
"""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a case makes its wrong input.

    Attributes:
        path: A directory of its own.
        datasets: Good data.
        finished_job: Directory of a job that was trained with other units.
        unserved: Address at which nobody listens.
    """

    path: pathlib.Path
    datasets: Datasets
    finished_job: pathlib.Path
    unserved: str

    def flags(self, *more: str) -> list[str]:
        """Flags of a run that would be good without `more`."""
        return trainer_flags(self.datasets.two_shards, self.path / "job", *more)

    def config(self, text: str = CONFIG) -> str:
        """A flag that names a config file with this text."""
        (self.path / "bad.py").write_text(text)
        return f"--config={self.path}/bad.py"

    def data(self, source: pathlib.Path | None = None) -> tuple[pathlib.Path, str]:
        """A copy of a dataset, and a flag that names it."""
        target = self.path / "data"
        shutil.copytree(source or self.datasets.two_shards, target)
        return target, f"--data.train={target}"

    def edit_manifest(self, change: Callable[[dict], None]) -> None:
        """Changes the manifest of the copied dataset."""
        path = self.path / "data" / manifest.FILE
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))


@dataclasses.dataclass(frozen=True)
class Case:
    """A wrong input.

    Attributes:
        flags: The trainer's, after the wrong input was made.
        message: Parts of the error, which may hold `{path}` and `{unserved}`.
        environ: Environment variables; `UNSERVED` in a value stands for the address.
    """

    flags: Callable[[Place], list[str]]
    message: tuple[str, ...]
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)
