"""What a run exports: a new version of the model, of its parameters or of a checkpoint."""

import json
import logging
import posixpath
from collections.abc import Mapping
from typing import Any, NamedTuple

from tfps.checkpoint.checkpoint import Checkpoint, DamagedCheckpointError
from tfps.errors import RunError
from tfps.export import versions
from tfps.export.checkpoint_parameters import CheckpointParameters
from tfps.export.exported_files import SCHEMA_FILE
from tfps.export.parameters import Parameters, StoreParameters
from tfps.export.saved_model import ExportForm, export
from tfps.export.sliced_variables import RowEncoding
from tfps.storage import files
from tfps.store.parameter_store import ParameterStore
from trainer.chief.export_conditions import unmet
from trainer.chief.export_dtype import DtypeCost
from trainer.chief.export_sample import predict_sample
from trainer.chief.run_inputs import RunInputs

_CHECKPOINT, _METRICS = "checkpoint", "metrics"  # in the schema's file
_log = logging.getLogger(__name__)


class Exported(NamedTuple):
    """Where a model was exported to.

    Attributes:
        newest: The newest version, which is another one, or None, where this one does not meet
            `train.export_if`.
    """

    path: str
    newest: str | None

    @property
    def refused(self) -> str | None:
        """Its directory if it is not the newest version."""
        return self.path if self.path != self.newest else None


class Exporter:
    """Exports models of a run, each as a version of its own."""

    def __init__(self, inputs: RunInputs, base: str = ""):
        """Exports nothing yet.

        Args:
            base: Directory of the versions; empty for that of the run, which may also be a
                directory for the model itself.
        """
        self._inputs = inputs
        self._base = base or inputs.export
        self._has_versions = bool(base) or inputs.has_versions
        # Of an evaluator's versions each is better than all before.
        self._conditions = () if base else inputs.experiment.train.export_if

    def export_store(
        self, store: ParameterStore, checkpoint: str, metrics: Mapping[str, float] | None
    ) -> Exported:
        """Exports the model with a store's parameters, once it predicts what they do.

        Args:
            metrics: What was measured of them; None for nothing.
        """
        return self._export(StoreParameters(self._inputs.model, store), checkpoint, metrics)

    def export_saved(self, checkpoint: Checkpoint, metrics: Mapping[str, float] | None) -> Exported:
        """Exports the model of a checkpoint, which this process reads by itself.

        Args:
            metrics: What was measured of it; None for nothing.
        """
        try:
            parameters = CheckpointParameters(checkpoint, self._inputs.model, self._inputs.rules)
            return self._export(parameters, checkpoint.name, metrics)
        except DamagedCheckpointError as damage:
            raise RunError(
                f"checkpoint {checkpoint.path}, of the best evaluation, is damaged: {damage}; "
                "export the last one with --train.export=last"
            ) from None

    def _export(
        self, parameters: Parameters, checkpoint: str, metrics: Mapping[str, float] | None
    ) -> Exported:
        inputs, train = self._inputs, self._inputs.experiment.train
        task, data = inputs.experiment.task, inputs.eval_data or inputs.data.of_epoch(0)
        encoding = RowEncoding(train.export_dtype)
        sample = predict_sample(task, parameters, data, not encoding.is_exact)
        found = self._place(metrics or {})
        facts = {_CHECKPOINT: checkpoint, _METRICS: dict(metrics or {})}
        predictions = export(task, parameters, found.path, sample, ExportForm(encoding), facts)
        if not encoding.is_exact:
            _log.info("%s", DtypeCost.of(task, parameters.layout, encoding, sample, predictions))
        if self._has_versions and not found.refused:
            versions.delete_old(self._base, train.keep_exports)
        return found

    def _place(self, metrics: Mapping[str, float]) -> Exported:
        """Where a model goes of which this was measured."""
        if not self._has_versions:
            return Exported(self._base, self._base)
        newest = versions.newest_version(self._base)
        known = metrics_of(newest) if newest and self._conditions else {}
        if not (problem := unmet(self._conditions, metrics, known)):
            path = versions.next_version(self._base)
            return Exported(path, path)
        path = versions.refused_path(self._base)
        stays = f"{newest} stays the newest version" if newest else "there is no version yet"
        _log.warning("%s: the model is exported to %s, and %s", problem, path, stays)
        return Exported(path, newest)


def metrics_of(version: str) -> dict[str, Any]:
    """What was measured of an exported version, by metric; nothing where it does not say."""
    try:
        content = json.loads(files.read(posixpath.join(version, SCHEMA_FILE)))
    except (FileNotFoundError, json.JSONDecodeError):
        _log.warning("%s does not say what was measured of it", version)
        return {}
    found = content.get(_METRICS) if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}
