"""Runs kept by Vertex Experiments, in the metadata of a project."""

import contextlib
import math
import os
import re
import uuid
from collections.abc import Mapping
from typing import Any

from tfps.errors import UserError

# Names of the environment, Vertex AI's own first: it sets them for its jobs.
_PROJECT = ("CLOUD_ML_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")
_REGION = ("CLOUD_ML_REGION", "GOOGLE_CLOUD_REGION")
_EXPERIMENT = "AIP_EXPERIMENT_NAME"
# What Google's own library names the parts of a run; the console shows what has these names.
_EXPERIMENT_SCHEMA, _RUN_SCHEMA, _VERSION = "system.Experiment", "system.ExperimentRun", "0.0.1"
_SETTINGS, _METRICS, _STATE = "_params", "_metrics", "_state"
_LONGEST = 128  # characters of an identifier
_TIMEOUT_SECONDS = 30.0


class VertexTracker:
    """Keeps a run in Vertex Experiments: what was set, and the newest of each figure.

    Curves are not among them: Vertex AI TensorBoard has those that the chief writes.
    """

    name = "vertex"

    def __init__(self, client: Any = None) -> None:
        """`client` is a `MetadataServiceClient`; None for one of the project's region."""
        try:
            from google.api_core import exceptions
            from google.cloud import aiplatform_v1
        except ImportError:
            raise UserError(
                "--track=vertex needs Google's library: pip install 'tfps[vertex-experiments]'"
            ) from None
        project, region = _named(_PROJECT, "project"), _named(_REGION, "region")
        self._types, self._exceptions = aiplatform_v1, exceptions
        self._client = client or aiplatform_v1.MetadataServiceClient(
            client_options={"api_endpoint": f"{region}-aiplatform.googleapis.com"},
            transport="rest",
        )
        self._place = f"projects/{project}/locations/{region}"
        self._run = ""
        self._kept: dict[str, Any] = {}

    def connect(self, experiment: str, title: str, known: str | None) -> str:
        self._make_store()
        if known:
            self._run = known
            found = self._ask("get_context", name=known).metadata or {}
            kept = {key: dict(found.get(key) or {}) for key in (_SETTINGS, _METRICS)}
            self._kept = {**kept, _STATE: "RUNNING"}
            self._update()
            return known
        own = _identifier(os.environ.get(_EXPERIMENT) or experiment)
        parent = self._make(own, own, _EXPERIMENT_SCHEMA, {"experiment_deleted": False})
        self._kept = {_SETTINGS: {}, _METRICS: {}, _STATE: "RUNNING"}
        number = uuid.uuid4().hex[:8]
        room = _LONGEST - len(own) - len(number) - 2
        if room < 1:
            raise ValueError(
                f"the experiment's name {own} is longer than {_LONGEST - 11} characters"
            )
        short = f"{_identifier(title)[:room]}-{number}"
        self._run = self._make(f"{own}-{short}", short, _RUN_SCHEMA, self._kept)
        self._ask("add_context_children", context=parent, child_contexts=[self._run])
        return self._run

    def describe(self, settings: Mapping[str, str]) -> None:
        self._kept[_SETTINGS] |= settings
        self._update()

    def log(self, step: int, at: float, values: Mapping[str, float]) -> None:
        numbers = {name: x for name, x in values.items() if math.isfinite(x)}  # as in JSON
        self._kept[_METRICS] |= {**numbers, "updates": float(step)}
        self._update()

    def end(self, has_finished: bool) -> None:
        self._kept[_STATE] = "COMPLETE" if has_finished else "FAILED"
        self._update()

    def _make_store(self) -> None:
        """Makes the project's store of metadata, which the first who uses it has to."""
        try:
            self._ask("get_metadata_store", name=f"{self._place}/metadataStores/default")
        except self._exceptions.NotFound:
            made = self._client.create_metadata_store(
                parent=self._place,
                metadata_store=self._types.MetadataStore(),
                metadata_store_id="default",
                timeout=_TIMEOUT_SECONDS,
            )
            made.result(timeout=_TIMEOUT_SECONDS)

    def _make(self, identifier: str, title: str, schema: str, metadata: Mapping[str, Any]) -> str:
        """Makes a context unless there is one; returns its name."""
        parent = f"{self._place}/metadataStores/default"
        context = self._types.Context(
            display_name=title, schema_title=schema, schema_version=_VERSION, metadata=metadata
        )
        # There may be one already: an experiment of which this is one more run.
        with contextlib.suppress(self._exceptions.Conflict):
            self._ask("create_context", parent=parent, context=context, context_id=identifier)
        return f"{parent}/contexts/{identifier}"

    def _update(self) -> None:
        context = self._types.Context(name=self._run, metadata=self._kept)
        self._ask("update_context", context=context, update_mask={"paths": ["metadata"]})

    def _ask(self, method: str, **request: Any) -> Any:
        return getattr(self._client, method)(**request, timeout=_TIMEOUT_SECONDS)


def _named(variables: tuple[str, ...], what: str) -> str:
    for variable in variables:
        if found := os.environ.get(variable):
            return found
    raise UserError(
        f"--track=vertex: the {what} is not known; set {variables[-1]}, as Vertex AI does for its "
        "own jobs"
    )


def _identifier(text: str) -> str:
    """A text as Vertex AI's identifiers are: of small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "tfps"
