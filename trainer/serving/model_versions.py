"""The versions of a model: the newest is served, and followed."""

import dataclasses
import gc
import logging
import posixpath
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import tensorflow as tf
from google.protobuf.message import Message

from tfps.cluster import resources
from tfps.errors import RunError, UserError, reason_of
from tfps.export import versions
from tfps.export.exported_files import (
    EXAMPLES_INPUT,
    EXAMPLES_SIGNATURE,
    FEATURES_SIGNATURE,
    GRAPH_FILE,
)
from tfps.export.loaded_model import ExportedModel
from tfps.export.serving_model import read_signature_defs
from tfps.export.versions import WarmUpRequest, read_warm_up
from tfps.job_dir import JobDir
from tfps.model.inputs import unpack_signature_inputs
from tfps.storage import files

_REST = 10  # a version that cannot be loaded is tried again after so many times what that took
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ServedVersion:
    """A version that can be asked."""

    number: int
    model: ExportedModel
    signature_defs: Message
    # Real records of its warm-up, if any: tensors `[n, *shape]` by feature name, ragged for shape
    # `(None,)`.
    records: Mapping[str, Any]

    @classmethod
    def load(cls, directory: str, number: int, beside_bytes: int = 0) -> Self:
        """Loads a version, and asks it what it is to be asked before anybody else does."""
        model = ExportedModel.load(directory, beside_bytes)
        signature_defs = read_signature_defs(directory)
        try:
            requests = read_warm_up(directory)
            for request in requests:
                _try(model, request)
        except (tf.errors.OpError, ValueError, LookupError, TypeError) as error:
            raise UserError(
                f"--model={directory}: its warm-up requests cannot be used ({reason_of(error)}); "
                "export the model again"
            ) from None
        return cls(number, model, signature_defs, _most_records(requests, model))


def _try(model: ExportedModel, request: WarmUpRequest) -> None:
    if request.signature == FEATURES_SIGNATURE:
        model.predict(_features(request, model))
    elif request.signature == EXAMPLES_SIGNATURE:
        model.predict_examples(request.inputs[EXAMPLES_INPUT].tolist())


def _features(request: WarmUpRequest, model: ExportedModel) -> dict[str, Any]:
    inputs = {name: tf.constant(value) for name, value in request.inputs.items()}
    return unpack_signature_inputs(inputs, model.features)


def _most_records(requests: Sequence[WarmUpRequest], model: ExportedModel) -> Mapping[str, Any]:
    found = [_features(x, model) for x in requests if x.signature == FEATURES_SIGNATURE]
    first = model.features[0].name
    return max(found, key=lambda records: int(records[first].shape[0]), default={})


@dataclasses.dataclass(frozen=True)
class _Failure:
    """A version that could not be loaded."""

    reason: str
    again: float  # when it is tried again, by the monotonic clock


class ModelVersions:
    """The newest version of a model, with the next in its place once that has been tried."""

    def __init__(self, base: str, loaded: ServedVersion, follows: bool):
        self._base = base  # of all versions, or of the only one
        self._loaded = loaded
        self._follows = follows
        # Never changed, only replaced: other threads read it.
        self._failures: Mapping[int, _Failure] = {}
        self._said = ""

    @classmethod
    def open(cls, model: str) -> Self:
        """Loads the newest version of a job, an export, or the one that is named."""
        model = model.rstrip("/") or model
        if files.exists(posixpath.join(model, GRAPH_FILE)):
            name = posixpath.basename(model)
            number = int(name) if name.isdecimal() and name.isascii() else 1
            return cls(model, ServedVersion.load(model, number), follows=False)
        for base in (model, JobDir(model).export):
            found = versions.whole_versions(base)
            failures: dict[int, _Failure] = {}
            for number in reversed(found):
                try:
                    loaded = _load(base, number)
                except (UserError, RunError) as error:
                    if number == found[0]:
                        raise
                    failures[number] = _Failure(str(error), time.monotonic())
                    _log.warning("version %d cannot be served: %s", number, error)
                    continue
                opened = cls(base, loaded, follows=True)
                opened._failures = failures
                return opened
        raise UserError(
            f"--model={model} has no version of an exported model; name the job_dir of a training "
            "run that has exported one, its export directory, or a version's"
        )

    @property
    def newest(self) -> ServedVersion:
        """What is served; whoever holds it may continue asking it when there is another."""
        return self._loaded

    def failures(self) -> dict[int, str]:
        """Why versions cannot be served, by their number."""
        return {number: failure.reason for number, failure in self._failures.items()}

    def follow(self, seconds: float, stop: threading.Event) -> None:
        """Looks for other versions until it is told to stop."""
        while self._follows and not stop.wait(seconds):
            try:
                self.look()
            except (UserError, RunError) as error:
                self._say(f"{error}; version {self._loaded.number} stays")
            except Exception:  # a fault of this program, after which it looks again
                _log.exception("no look for other versions; %d stays", self._loaded.number)

    def look(self) -> None:
        """Takes the newest version that can be served in place of the loaded one.

        The newest that there is counts, as in TensorFlow Serving: where it was deleted, one before.
        Where none is left, the loaded one stays. The loaded one takes its newest delta.
        """
        found = versions.whole_versions(self._base)
        self._failures = {n: failure for n, failure in self._failures.items() if n in found}
        if not found:
            self._say(f"{self._base} has no version any more; version {self._loaded.number} stays")
        for number in reversed(found):
            if number == self._loaded.number:
                self._loaded.model.update()
                return
            failure = self._failures.get(number)
            if failure and time.monotonic() < failure.again:
                continue
            if self._replace(number):
                return

    def _replace(self, number: int) -> bool:
        """Takes a version in place of the loaded one; False if it cannot be served."""
        began = time.monotonic()
        try:
            loaded = _load(self._base, number, self._loaded.model.variable_bytes)
        except (UserError, RunError) as error:
            took = time.monotonic() - began
            failure = _Failure(str(error), time.monotonic() + _REST * took)
            self._failures = {**self._failures, number: failure}
            self._say(
                f"version {number} cannot be served: {error}; version {self._loaded.number} stays"
            )
            return False
        before, self._loaded = self._loaded, loaded
        self._failures = {n: failure for n, failure in self._failures.items() if n != number}
        self._say(f"version {number} is served in place of version {before.number}")
        del before
        gc.collect()  # a model holds itself
        resources.trim_memory()
        return True

    def _say(self, message: str) -> None:
        """Logs a message, once for as long as there is no other."""
        if message != self._said:
            _log.warning("%s", message)
        self._said = message


def _load(base: str, number: int, beside_bytes: int = 0) -> ServedVersion:
    try:
        return ServedVersion.load(versions.path_of(base, number), number, beside_bytes)
    except (UserError, RunError):
        raise
    except Exception as error:  # whatever TensorFlow says of files that are half there
        raise UserError(
            f"--model={versions.path_of(base, number)} cannot be loaded: {reason_of(error)}"
        ) from error
