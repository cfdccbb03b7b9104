"""Records for which predictions are asked, from a file or from what warms a model's servers up."""

import base64
import json
import pathlib
import sys
from typing import Any

from cloud.deployment import sample_records
from cloud.deployment.served_model import ServedModel
from tfps.errors import UserError, reason_of

_STDIN = "-"
_MOST_BYTES = 1 << 20  # of examples in a request; Vertex AI takes one of 1.5 MB
_FORM = (
    'write a list of instances, one instance per line, or the whole request, {"instances": …} or '
    '{"inputs": …}'
)


def read(path: str) -> dict[str, Any]:
    """The request for predictions in a file, in any form of `_FORM`; `-` is the standard input."""
    where = f"--instances={path}"
    try:
        text = sys.stdin.read() if path == _STDIN else pathlib.Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{where} cannot be read: {reason_of(error)}") from None
    found = _decoded(text, where)
    if isinstance(found, list):
        found = {"instances": found}
    is_whole = isinstance(found, dict) and ("instances" in found or "inputs" in found)
    if not is_whole and isinstance(found, dict):
        found = {"instances": [found]}
    elif not is_whole:
        raise UserError(f"{where}: a {type(found).__name__} is no request; {_FORM}")
    if not (found.get("instances") or found.get("inputs")):
        raise UserError(f"{where} has no instance; {_FORM}")
    return dict(found)


def of_model(model: ServedModel) -> dict[str, Any]:
    """A request with records of the training's own data, which warm a model's servers up."""
    signature, examples = sample_records.read(model)
    if not examples:
        raise UserError(
            f"--model={model.path} has no records with which to try what is deployed; give some "
            f"with --instances=FILE.json: {_FORM}"
        )
    instances: list[dict[str, str]] = []
    size = 0
    for example in examples:
        text = base64.b64encode(example).decode()
        size += len(text)
        if instances and size > _MOST_BYTES:
            break
        instances.append({"b64": text})
    return {"signature_name": signature, "instances": instances}


def _decoded(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        reason = str(error)
    if len(lines) < 2:
        raise UserError(f"{where} is not JSON ({reason}); {_FORM}")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise UserError(f"{where}, line {number} is not JSON ({error}); {_FORM}") from None
    return found
