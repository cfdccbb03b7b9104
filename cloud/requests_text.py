"""Writes requests as text, for people and for other tools."""

import json
from collections.abc import Sequence

import yaml

from cloud.target import Request

FORMATS = ("yaml", "json")


def write(requests: Sequence[Request], form: str) -> str:
    """Requests as text.

    Args:
        form: yaml or json; several JSON documents follow each other.
    """
    texts = [each if isinstance(each, str) else _encode(each, form) for each in requests]
    return ("---\n" if form == "yaml" else "").join(texts)


def _encode(request: object, form: str) -> str:
    if form == "json":
        return json.dumps(request, indent=2) + "\n"
    return yaml.dump(request, Dumper=_Dumper, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes a file within a request as the lines that it has."""


def _represent(dumper: _Dumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent)
