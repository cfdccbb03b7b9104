"""What a version of a model is uploaded from: a copy of one export, and of nothing else.

Beside an export lie those before it, and while training goes on those after it, and TensorFlow
Serving would serve the newest. So the one to be served is copied, within Google Cloud Storage,
into a directory whose name tells the content. Where its signatures are to exchange their names, the
files that say so are written there instead.
"""

import posixpath
from typing import Any

import google_crc32c
from google.api_core import exceptions

from cloud.deployment import model_files
from cloud.deployment.default_signature import (
    CHANGED,
    LEFT_OUT,
    changed_files,
    exchanged_digest,
)
from cloud.deployment.model_files import ModelFile
from cloud.deployment.served_model import ServedModel, digest_of
from tfps.errors import RunError
from tfps.export.names import GRAPH_FILE
from tfps.storage import objects
from tfps.storage.paths import bucket_and_name


def stage(model: ServedModel, artifact: str) -> None:
    """Copies a version to where it is uploaded from, unless it is there.

    Args:
        model: The version, in `gs://`.
        artifact: Directory in which it is to be the only one; see `Requests.version`.

    Raises:
        UserError: If it cannot be read or written.
        RunError: If it has changed meanwhile.
    """
    target = posixpath.join(artifact, str(model.version))
    there = model_files.files(target)
    if not model.is_exchanged and digest_of(there) == model.digest:
        return
    changed = _changed(model) if model.is_exchanged else {}
    source = model_files.files(model.path)  # after those were read: what the digest is of
    wanted = {name: _said(changed[name]) if name in changed else source[name] for name in source}
    if model.is_exchanged:
        wanted = {name: each for name, each in wanted.items() if name not in LEFT_OUT}
    # Without its graph a directory is no model, so the graph comes last.
    for name in sorted(wanted, key=lambda name: (name == GRAPH_FILE, name)):
        if there.get(name) == wanted[name]:
            continue
        if name in changed:
            _write(changed[name], posixpath.join(target, name))
        else:
            _copy(posixpath.join(model.path, name), posixpath.join(target, name))
    copied = model_files.files(target)
    found = exchanged_digest(digest_of(source)) if model.is_exchanged else digest_of(copied)
    if found != model.digest or copied != wanted:
        raise RunError(
            f"--model={model.path} has changed while it was copied to {target}; give the same "
            "command again once it does not change any more"
        )


def _changed(model: ServedModel) -> dict[str, bytes]:
    """Contents of the files that are not copied, by name."""
    graph, schema = (model_files.read(posixpath.join(model.path, name)) for name in CHANGED)
    return changed_files(graph, schema, model.path)


def _said(content: bytes) -> ModelFile:
    """What a listing will say of a file."""
    return ModelFile(len(content), google_crc32c.Checksum(content).hexdigest().decode())


def _write(content: bytes, target: str) -> None:
    bucket, name = bucket_and_name(target)
    try:
        objects.client().bucket(bucket).blob(name).upload_from_string(
            content, timeout=objects.TIMEOUT, retry=objects.retrying()
        )
    except objects.FAILURES as error:
        raise objects.explain(error, f"{target} (the copy that is uploaded)") from None


def _copy(source: str, target: str) -> None:
    """Copies an object within Google Cloud Storage."""
    bucket, name = bucket_and_name(source)
    target_bucket, target_name = bucket_and_name(target)
    try:
        client = objects.client()
        read = client.bucket(bucket).blob(name)
        written = client.bucket(target_bucket).blob(target_name)
        token: Any = None
        while True:  # a large object between places takes several requests
            token, _, _ = written.rewrite(
                read, token=token, timeout=objects.TIMEOUT, retry=objects.retrying()
            )
            if token is None:
                return
    except exceptions.NotFound:
        raise RunError(f"{source} has vanished while it was copied; name another version") from None
    except objects.FAILURES as error:
        raise objects.explain(error, f"{target} (the copy that is uploaded)") from None
