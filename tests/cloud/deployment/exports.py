"""Directories like those of exported models, as far as nobody loads them."""

import json
import pathlib

from tests.export_schema import schema
from tfps.data.feature import Feature
from tfps.storage import objects

FEATURES = (
    Feature("age", "float32"),
    Feature("ids", "int64", (2,), 10),
    Feature("town", "string"),
)
RAGGED = (*FEATURES, Feature("tags", "int64", (None,), 50))
LABEL = Feature("clicked", "int64", vocabulary=2)
GRAPH = "saved_model.pb"
WARM_UP = "assets.extra/tf_serving_warmup_requests"


def files(
    features=FEATURES, data_bytes=1000, shards=1, graph=b"graph", warm_up=b"requests", **facts
):
    """Contents of a version's files by their paths."""
    data = {
        f"variables/variables.data-{k:05d}-of-{shards:05d}": b"x" * data_bytes
        for k in range(shards)
    }
    content = {
        GRAPH: graph,
        "variables/variables.index": b"index",
        **({WARM_UP: warm_up} if warm_up else {}),
        **data,
    }
    sizes = {name: len(each) for name, each in content.items()}
    described = schema(features, [LABEL], **{"sizes": sizes, **facts})
    return {**content, "schema.json": json.dumps(described).encode()}


def write(job_dir: pathlib.Path, *versions: int, **options) -> pathlib.Path:
    """Writes versions below JOB_DIR/export; returns JOB_DIR."""
    for version in versions:
        for name, content in files(**options).items():
            path = job_dir / "export" / str(version) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return job_dir


def upload(job_dir: str, *versions: int, **options) -> str:
    """Writes versions below JOB_DIR/export in gs://; returns JOB_DIR."""
    bucket, _, name = job_dir.removeprefix("gs://").partition("/")
    for version in versions:
        for path, content in files(**options).items():
            blob = objects.client().bucket(bucket).blob(f"{name}/export/{version}/{path}")
            blob.upload_from_string(content)
    return job_dir
