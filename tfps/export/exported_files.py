"""What `schema.json` of an exported model says: what it takes and predicts, how it can be asked.

It loads no TensorFlow.
"""

import json
import posixpath
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from tfps.data.feature import Feature
from tfps.errors import UserError

EXPORT_DIRECTORY = "export"  # in the job_dir: versions of the model
GRAPH_FILE = "saved_model.pb"
SCHEMA_FILE = "schema.json"
WARM_UP_FILE = "assets.extra/tf_serving_warmup_requests"
VARIABLES_DIRECTORY, VARIABLES_NAME = "variables", "variables"
SLICES = "slices"  # attribute of the SavedModel: variables of tables that no process holds whole
FEATURES_SIGNATURE, EXAMPLES_SIGNATURE = "serving_default", "serving_examples"
EXAMPLES_INPUT = "examples"  # of the second signature
FORMAT = 2
TAKES_FEATURES, TAKES_EXAMPLES = "features", "examples"
# What each signature takes; so it is, too, of a model whose file does not say.
SIGNATURES = {FEATURES_SIGNATURE: TAKES_FEATURES, EXAMPLES_SIGNATURE: TAKES_EXAMPLES}
DEFAULT = "default"
HINT = "export the model again by training"


def variables_prefix(directory: str) -> str:
    """Prefix of the files in which a SavedModel has its variables."""
    return posixpath.join(directory, VARIABLES_DIRECTORY, VARIABLES_NAME)


class ExportSchema(NamedTuple):
    """The content of the file.

    Attributes:
        sizes: Bytes of each other file, by path from the model's directory; empty of a model from
            before they were recorded.
    """

    features: tuple[Feature, ...]
    labels: tuple[Feature, ...]
    signatures: Mapping[str, str]
    sizes: Mapping[str, int]
    arguments: Mapping[str, str]

    @classmethod
    def of(cls, schema: Mapping[str, Any], where: str) -> Self:
        """Reads what was decoded."""
        features = schema.get("features")
        if not isinstance(features, list) or not features:
            raise UserError(f"{where}: 'features' is not a list of features; {HINT}")
        labels = schema.get("labels")
        if not isinstance(labels, list):
            raise UserError(f"{where}: 'labels' is not a list of labels; {HINT}")
        return cls(
            tuple(_feature(item, f"{where}: features") for item in features),
            tuple(_feature(item, f"{where}: labels") for item in labels),
            _signatures(schema.get("signatures", SIGNATURES), where),
            _sizes(schema.get("sizes", {}), where),
            _arguments(schema.get("arguments", {}), where),
        )


def encode(feature: Feature) -> dict[str, Any]:
    """A feature as the file has it: its `Feature.schema()`, and its default where it has one."""
    default = {} if feature.default is None else {DEFAULT: feature.default}
    return feature.schema() | default


def decode(text: bytes, where: str) -> dict[str, Any]:
    """Decodes the file."""
    try:
        content = json.loads(text.decode("utf-8", errors="replace"))
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is not JSON ({error}); {HINT}") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise UserError(f"{where} has format {found!r}, but this version reads {FORMAT}; {HINT}")
    return dict(content)


def _feature(content: Any, where: str) -> Feature:
    """A feature as `encode` gave it."""
    if not isinstance(content, dict):
        raise UserError(f"{where}: {content!r} is not a feature; {HINT}")
    name, dtype, shape = (content.get(key) for key in ("name", "dtype", "shape"))
    vocabulary = content.get("vocabulary_size")
    if (
        not (isinstance(name, str) and isinstance(dtype, str) and isinstance(shape, list))
        or not (shape == [None] or all(isinstance(size, int) and size > 0 for size in shape))
        or not isinstance(vocabulary, int)
    ):
        raise UserError(
            f"{where}: {content!r} lacks a good name, dtype, shape or vocabulary_size; {HINT}"
        )
    return Feature(name, dtype, tuple(shape), vocabulary or None, content.get(DEFAULT))


def _signatures(content: Any, where: str) -> Mapping[str, str]:
    is_good = isinstance(content, dict) and all(
        takes in (TAKES_FEATURES, TAKES_EXAMPLES) for takes in content.values()
    )
    if not is_good:
        raise UserError(
            f"{where}: 'signatures' does not say of each whether it takes {TAKES_FEATURES} or "
            f"{TAKES_EXAMPLES}; {HINT}"
        )
    return dict(content)


def _sizes(content: Any, where: str) -> Mapping[str, int]:
    is_good = isinstance(content, dict) and all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0
        for size in content.values()
    )
    if not is_good:
        raise UserError(f"{where}: 'sizes' does not say how many bytes each file has; {HINT}")
    return dict(content)


def _arguments(content: Any, where: str) -> Mapping[str, str]:
    is_good = isinstance(content, dict) and all(isinstance(x, str) for x in content.values())
    if not is_good:
        raise UserError(f"{where}: 'arguments' does not name Python's arguments; {HINT}")
    return dict(content)
