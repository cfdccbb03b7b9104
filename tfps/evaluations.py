"""`JOB_DIR/evaluations`: what was measured of which checkpoint, by the chief or the evaluator."""

import dataclasses
import json
import posixpath
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfps import whole_file
from tfps.errors import UserError

FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The metrics of one checkpoint.

    Attributes:
        checkpoint: Name of its directory; names sort in the order of the training.
        steps: Updates of the parameters that it holds.
        epoch: Epochs that were trained.
        records: Records that were evaluated, each once.
        metrics: `loss` and the task's metrics by name.
        seconds: From the first record to the metrics.
        dataset: Identity of the evaluation data.
    """

    checkpoint: str
    steps: int
    epoch: int
    records: int
    metrics: dict[str, float]
    seconds: float
    dataset: dict[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4f}" for name, value in self.metrics.items())


class Evaluations:
    """A job's evaluations, one file each, named by the checkpoint.

    A file appears in one piece, and stays when its checkpoint is deleted.
    """

    def __init__(self, job_dir: str):
        self._path = posixpath.join(job_dir, "evaluations")
        self._known: dict[str, Evaluation] = {}  # read or written before

    def write(self, evaluation: Evaluation) -> None:
        """Adds an evaluation, in place of one of the same checkpoint."""
        tf.io.gfile.makedirs(self._path)
        data = {"format": FORMAT, **dataclasses.asdict(evaluation)}
        whole_file.write(self._file(evaluation.checkpoint), json.dumps(data, indent=1) + "\n")
        self._known[evaluation.checkpoint] = evaluation

    def checkpoints(self) -> list[str]:
        """Names of the checkpoints that have one, in the order of the training."""
        if not tf.io.gfile.isdir(self._path):
            return []
        found = [re.fullmatch(r"(.+)\.json", name) for name in tf.io.gfile.listdir(self._path)]
        return sorted(match[1] for match in found if match)

    def all(self) -> list[Evaluation]:
        """Every evaluation, in the order of the training; each file is read once.

        Raises:
            UserError: If a file is not an evaluation.
        """
        names = self.checkpoints()
        found = {name: self._known.get(name) or self._read(name) for name in names}
        self._known = {name: evaluation for name, evaluation in found.items() if evaluation}
        return list(self._known.values())

    def forget(self, is_stale: Callable[[Evaluation], bool]) -> int:
        """Deletes evaluations.

        Args:
            is_stale: Which ones.

        Returns:
            How many.

        Raises:
            UserError: If a file is not an evaluation.
        """
        stale = [evaluation.checkpoint for evaluation in self.all() if is_stale(evaluation)]
        for checkpoint in stale:
            tf.io.gfile.remove(self._file(checkpoint))
            del self._known[checkpoint]
        return len(stale)

    def _read(self, checkpoint: str) -> Evaluation | None:
        """The evaluation of a checkpoint; None if another task has just deleted it."""
        path = self._file(checkpoint)
        try:
            with tf.io.gfile.GFile(path) as file:
                data = json.load(file)
            if data.pop("format") != FORMAT:
                raise ValueError("another format")
            if data["checkpoint"] != checkpoint:  # which names the file that `forget` deletes
                raise ValueError(f"it is of checkpoint {data['checkpoint']!r}")
            return Evaluation(**data)
        except tf.errors.NotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, tf.errors.OpError) as error:
            raise UserError(
                f"{path} is not an evaluation of this version ({error}); delete it"
            ) from None

    def _file(self, checkpoint: str) -> str:
        return posixpath.join(self._path, f"{checkpoint}.json")
