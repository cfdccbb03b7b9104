"""A page with a form made from a model's features, which shows what the model predicts."""

import base64
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfps.data.feature import Feature
from tfps.errors import listed
from tfps.model.inputs import row_lengths_of
from trainer.page.templates import html_templates
from trainer.serving.model_versions import ServedVersion
from trainer.serving.raw_rows import RawRows

_TEMPLATE = "form.html.j2"
_MOST_BYTES = 2 << 20  # of the records that a page brings with it
_environment = html_templates("trainer.serving")


def page(version: ServedVersion, name: str, rows: RawRows | None = None) -> tuple[str, str]:
    """The page of a version, and the Content-Security-Policy that lets it run its script.

    It asks for features, or with `rows` for the columns that these are made of.
    """
    nonce = secrets.token_urlsafe(16)
    if rows is None:
        records = _records(version)
        features = [
            {**_described(feature), "may_be_bytes": _may_be_bytes(feature, records)}
            for feature in version.model.features
        ]
    else:
        columns = {Feature(column, "string"): made for column, made in rows.columns.items()}
        records = [{column.name: _nothing(column) for column in columns}]
        features = [
            {**_described(column), "may_be_bytes": False, "hint": f"for {listed(made)}"}
            for column, made in columns.items()
        ]
    html = _environment.get_template(_TEMPLATE).render(
        name=name,
        version=version.number,
        directory=version.model.directory,
        features=features,
        converted=", ".join(version.model.converted),
        has_raw_rows=rows is not None,
        labels=", ".join(label.name for label in version.model.labels),
        records=records,
        nonce=nonce,
    )
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return html, policy


def _described(feature: Feature) -> dict[str, Any]:
    """A feature, as the page and its script need it."""
    return {
        "name": feature.name,
        "dtype": feature.dtype,
        "shape": list(feature.shape),
        "lengths": row_lengths_of(feature) if feature.is_ragged else "",
        "is_single": feature.shape == (),
        "hint": _hint(feature),
    }


def _may_be_bytes(feature: Feature, records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a feature holds something else than text in the records, or nothing shows it."""
    if feature.dtype != "string":
        return False
    values = [record[feature.name] for record in records]
    is_shown = any(text for value in values for text in value["texts"])
    return not is_shown or any(value["is_encoded"] for value in values)


def _hint(feature: Feature) -> str:
    """What may be given for a feature."""
    kind = {"int64": "whole number", "float32": "number", "string": "text"}[feature.dtype]
    ids = f", 0 to {feature.vocabulary_size - 1:,}" if feature.vocabulary_size else ""
    if not feature.shape:
        return f"{kind}{ids}"
    if feature.is_ragged:
        return f"any number of {kind}s{ids}"
    plural = "" if feature.size == 1 else "s"
    return f"{' by '.join(str(size) for size in feature.shape)} {kind}{plural}{ids}"


def _records(version: ServedVersion) -> list[dict[str, Any]]:
    """Records to begin with, as many as a page can bring with it; at least one."""
    features = version.model.features
    if not version.records:
        return [{feature.name: _nothing(feature) for feature in features}]
    found: list[dict[str, Any]] = []
    held = 0
    for row in range(int(version.records[features[0].name].shape[0])):
        record = {f.name: _texts(np.asarray(version.records[f.name][row]), f) for f in features}
        held += sum(len(text) + 3 for value in record.values() for text in value["texts"])
        if found and held > _MOST_BYTES:
            break
        found.append(record)
    return found


def _nothing(feature: Feature) -> dict[str, Any]:
    zero = "" if feature.dtype == "string" else "0"
    return {"texts": [zero] * (feature.size or 0), "is_encoded": False}


def _texts(value: Any, feature: Feature) -> Mapping[str, Any]:
    """A record's values one after the other, as text; what is no text in base64."""
    flat = value.reshape(-1)
    if feature.dtype != "string":
        return {"texts": [str(each) for each in flat], "is_encoded": False}
    try:
        texts = [each.decode() for each in flat.tolist()]
        is_plain = all(text.isprintable() for text in texts)
    except UnicodeDecodeError:
        is_plain = False
    if not is_plain:
        texts = [base64.b64encode(each).decode() for each in flat.tolist()]
    return {"texts": texts, "is_encoded": not is_plain}
