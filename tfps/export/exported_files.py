"""The content of an exported model's `schema.json`: inputs, predictions, signatures.

It loads no TensorFlow.
"""

import dataclasses
import json
import posixpath
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec

from tfps.data.feature import Feature
from tfps.errors import UserError

GRAPH_FILE = "saved_model.pb"
SCHEMA_FILE = "schema.json"
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
VARIABLES_DIRECTORY, VARIABLES_NAME = "variables", "variables"
SLICES = "slices"  # attribute of the SavedModel: variables of tables that no process holds whole
FEATURES_SIGNATURE, EXAMPLES_SIGNATURE = "serving_default", "serving_examples"
EXAMPLES_INPUT = "examples"  # of the second signature
FORMAT = 2
TAKES_FEATURES: Literal["features"] = "features"
TAKES_EXAMPLES: Literal["examples"] = "examples"
# By signature, what it takes.
SIGNATURES: dict[str, Literal["features", "examples"]] = {
    FEATURES_SIGNATURE: TAKES_FEATURES,
    EXAMPLES_SIGNATURE: TAKES_EXAMPLES,
}
DEFAULT = "default"
# In the schema's file: the checkpoint that was exported, the full one that it needs or is, and the
# places of variables in the SavedModel's attribute `model`, by path.
CHECKPOINT, BASE, VARIABLES = "checkpoint", "base", "variables"
HINT = "export the model again by training"


def variables_prefix(directory: str) -> str:
    return posixpath.join(directory, VARIABLES_DIRECTORY, VARIABLES_NAME)


@dataclasses.dataclass(frozen=True)
class _StoredFeature:
    """A feature from the output of `encode`."""

    name: str
    dtype: str
    shape: list[Annotated[int, msgspec.Meta(gt=0)] | None]
    vocabulary_size: int
    default: int | float | str | None = None


@dataclasses.dataclass(frozen=True)
class _File:
    features: Annotated[list[_StoredFeature], msgspec.Meta(min_length=1)]
    labels: list[_StoredFeature]
    converted: list[str]
    signatures: dict[str, Literal["features", "examples"]]
    sizes: dict[str, Annotated[int, msgspec.Meta(ge=0)]]
    arguments: dict[str, str]


class ExportSchema(NamedTuple):
    """The content of the file."""

    features: tuple[Feature, ...]
    labels: tuple[Feature, ...]
    converted: list[str]  # features and labels that the config's rows() make of raw cells
    signatures: Mapping[str, str]
    sizes: Mapping[str, int]  # bytes of each other file by relative path
    arguments: Mapping[str, str]

    @classmethod
    def of(cls, schema: Mapping[str, Any], where: str) -> Self:
        try:
            found = msgspec.convert(schema, _File)
        except msgspec.ValidationError as error:
            raise UserError(f"{where}: {error}; {HINT}") from None
        features, labels = (
            tuple(
                Feature(x.name, x.dtype, tuple(x.shape), x.vocabulary_size or None, x.default)
                for x in some
            )
            for some in (found.features, found.labels)
        )
        return cls(
            features, labels, found.converted, found.signatures, found.sizes, found.arguments
        )


def encode(feature: Feature) -> dict[str, Any]:
    """A feature in the file: its `Feature.schema()`, and its default if it has one."""
    default = {} if feature.default is None else {DEFAULT: feature.default}
    return feature.schema() | default


def decode(text: bytes, where: str) -> dict[str, Any]:
    try:
        content = json.loads(text.decode("utf-8", errors="replace"))
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is not JSON ({error}); {HINT}") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise UserError(f"{where} has format {found!r}, but this version reads {FORMAT}; {HINT}")
    return dict(content)
