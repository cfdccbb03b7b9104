"""What a file of the user's adds to rendered objects: `--patch=FILE`.

The file has YAML documents. One of kind `PodTemplate` is merged into every pod's template, or with
`metadata.name` into that of one role; one of another kind into the object of that kind. Mappings
are merged, null removes. Lists of mappings with a name, such as containers and volumes, are merged
by it, volumeMounts by their mountPath; other mappings are added to a list, such as tolerations.
Other lists are replaced.
"""

import copy
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from cloud.kubernetes.kubectl import Json
from tfps.errors import UserError

_POD = "PodTemplate"
_KEYS = ("mountPath", "name")  # that tell the mappings of a list apart


def patched(objects: Sequence[Json], path: str) -> list[Json]:
    """The objects with what a file adds to them."""
    found = [copy.deepcopy(each) for each in objects]
    for number, document in enumerate(_documents(path), 1):
        where = f"--patch={path}, document {number}"
        kind, name = document.get("kind"), (document.get("metadata") or {}).get("name")
        if kind == _POD:
            _check_keys(document, {"kind", "apiVersion", "metadata", "template"}, where)
            if set(document.get("metadata") or {}) - {"name"}:
                what = "no metadata but name, a role's: write that of its pods into template"
                raise UserError(f"{where}: a {_POD} has {what}")
            roles = {role: pod for each in found for role, pod in _pods(each)}
            if name is not None and name not in roles:
                raise UserError(f"{where}: there is no role {name!r}; there are {', '.join(roles)}")
            for role, pod in roles.items():
                if name in (None, role):
                    _merge(pod, copy.deepcopy(document.get("template") or {}), where)
            continue
        own = [each for each in found if each["kind"] == kind]
        if not own:
            kinds = ", ".join(dict.fromkeys([*(each["kind"] for each in found), _POD]))
            raise UserError(f"{where}: kind {kind!r} is none of {kinds}")
        rest = {key: value for key, value in document.items() if key not in ("kind", "apiVersion")}
        if name not in (None, own[0]["metadata"]["name"]):
            raise UserError(
                f"{where}: metadata.name is {name}, but the {kind} is {own[0]['metadata']['name']}"
            )
        _merge(own[0], rest, where)
    return found


def _documents(path: str) -> list[Json]:
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        found = [each for each in yaml.safe_load_all(text) if each is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"--patch={path} cannot be read: {' '.join(str(error).split())}") from None
    if not found or not all(isinstance(each, dict) for each in found):
        raise UserError(f"--patch={path}: write YAML documents that each have a kind")
    return found


def _pods(manifest: Json) -> Iterator[tuple[str, Json]]:
    """The template of the pods of each role."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "TrainingRuntime":
        spec = spec["template"]["spec"]
    if manifest["kind"] in ("JobSet", "TrainingRuntime"):
        for job in spec["replicatedJobs"]:
            yield job["name"], job["template"]["spec"]["template"]
    elif manifest["kind"] == "TFJob":
        for role, replicas in spec["tfReplicaSpecs"].items():
            yield role.lower(), replicas["template"]
    elif manifest["kind"] == "Deployment":
        yield "server", spec["template"]


def _check_keys(document: Json, allowed: set[str], where: str) -> None:
    if unknown := sorted(set(document) - allowed):
        raise UserError(f"{where}: a {_POD} has template, and no {', '.join(unknown)}")


def _merge(into: Json, changes: Any, where: str) -> None:
    if not isinstance(changes, dict):
        raise UserError(f"{where}: {changes!r} stands where a mapping is needed")
    for key, value in changes.items():
        held = into.get(key)
        if value is None:
            into.pop(key, None)
        elif isinstance(held, dict):
            _merge(held, value, f"{where}, {key}")
        elif isinstance(held, list) and isinstance(value, list):
            into[key] = _merged_list(held, value, f"{where}, {key}")
        else:
            into[key] = value


def _merged_list(held: list[Any], changes: list[Any], where: str) -> list[Any]:
    if not all(isinstance(each, dict) for each in (*held, *changes)):
        return changes
    found = list(held)
    for change in changes:
        key = next((key for key in _KEYS if key in change), None)
        same = [each for each in found if key and each.get(key) == change[key]]
        if same:
            _merge(same[0], change, where)
        else:
            found.append(change)
    return found
