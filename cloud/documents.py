"""Prints requests for people and for other tools."""

import json
from collections.abc import Sequence

import yaml

from cloud.target import Document

FORMATS = ("yaml", "json")


def text(documents: Sequence[Document], form: str) -> str:
    """Requests as text.

    Args:
        documents: The requests; text stays as it is.
        form: yaml or json; several JSON documents follow each other.

    Returns:
        Lines, the last one ended.
    """
    parts = [part if isinstance(part, str) else _encoded(part, form) for part in documents]
    return ("---\n" if form == "yaml" else "").join(parts)


def _encoded(document: object, form: str) -> str:
    if form == "json":
        return json.dumps(document, indent=2) + "\n"
    return yaml.safe_dump(document, sort_keys=False, width=100)
