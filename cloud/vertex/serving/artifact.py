"""What a version of a model is uploaded from: a copy of one export, and of nothing else.

Beside an export lie those before it, and while training goes on those after it, and TensorFlow
Serving would serve the newest. So the one to be served is copied, within Google Cloud Storage,
into a directory whose name tells the content.
"""

import posixpath
from typing import Any

from google.api_core import exceptions

from cloud.deployment import model_files
from cloud.deployment.served_model import ServedModel, digest_of
from tfps.errors import RunError
from tfps.export.exported_files import GRAPH_FILE
from tfps.storage import objects
from tfps.storage.paths import bucket_and_name


def stage(model: ServedModel, artifact: str) -> None:
    """Copies a version to where it is uploaded from, unless it is there.

    Args:
        artifact: Directory in which it is to be the only one; see `Requests.version`.
    """
    target = posixpath.join(artifact, str(model.version))
    there = model_files.files(target)
    if digest_of(there) == model.digest:
        return
    source = model_files.files(model.path)
    # Without its graph a directory is no model, so the graph comes last.
    for name in sorted(source, key=lambda name: (name == GRAPH_FILE, name)):
        if there.get(name) != source[name]:
            _copy(posixpath.join(model.path, name), posixpath.join(target, name))
    copied = model_files.files(target)
    if digest_of(copied) != model.digest:
        raise RunError(
            f"--model={model.path} has changed while it was copied to {target}; give the same "
            "command again once it does not change any more"
        )


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
