"""The request that predicts a dataset without an endpoint, in the JSON of Vertex AI's REST API."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from cloud.vertex.serving.endpoint_requests import Machines
from cloud.vertex.serving.model_version import LABEL
from tfps.errors import UserError

BIGQUERY = "bigquery"
FORMATS = ("jsonl", "csv", "tf-record", "tf-record-gzip", "file-list", BIGQUERY)
# Formats by how the names of their files end.
_ENDS = {
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".tfrecord": "tf-record",
    ".tfrecord.gz": "tf-record-gzip",
    ".txt": "file-list",
}
_OBJECTS = r"gs://[a-z0-9][a-z0-9._-]+/[^,]+"
_PLACE = r"gs://[a-z0-9][a-z0-9._-]+(/.*)?"
_TABLE = r"bq://[^./]+\.[^./]+\.[^./]+"
_DATASET = r"bq://[^./]+(\.[^./]+)?"


@dataclasses.dataclass(frozen=True)
class BatchData:
    """What is predicted, and where the predictions go.

    Attributes:
        inputs: `gs://` files, each of which may have `*` in its name, or one table as
            `bq://PROJECT.DATASET.TABLE`.
        output: `gs://` directory, or `bq://PROJECT` or `bq://PROJECT.DATASET`.
        form: One of `FORMATS`; empty for what the files' names say.
        key: Column or field that predictions are written with instead of the whole record; empty
            for none.
        records: Of a request to a server; 0 for Vertex AI's choice.
    """

    inputs: tuple[str, ...]
    output: str
    form: str = ""
    key: str = ""
    records: int = 0

    def __post_init__(self) -> None:
        if not self.inputs:
            raise UserError("--input is missing; give gs:// files or bq://PROJECT.DATASET.TABLE")
        tables = [each for each in self.inputs if re.fullmatch(_TABLE, each)]
        for each in self.inputs:
            if each not in tables and not re.fullmatch(_OBJECTS, each):
                raise UserError(
                    f"--input={each}: write gs://BUCKET/FILE or bq://PROJECT.DATASET.TABLE"
                )
        if tables and len(self.inputs) > 1:
            raise UserError(f"--input: {tables[0]} and others; give one table alone, or files")
        if not re.fullmatch(_PLACE, self.output) and not re.fullmatch(_DATASET, self.output):
            raise UserError(
                f"--predictions={self.output}: write gs://BUCKET/PATH, or bq://PROJECT.DATASET"
            )
        if bool(tables) != (self.instances_format == BIGQUERY):
            raise UserError(
                f"--instances_format={self.form}: {self.inputs[0]} is "
                f"{'a table' if tables else 'no table'}; correct one of them"
            )
        if self.key and self.instances_format == "file-list":
            raise UserError(f"--key={self.key}: a file has no fields; leave it out")

    @property
    def instances_format(self) -> str:
        """The format of the input.

        Raises:
            UserError: If it is not given and the names do not say.
        """
        if self.form:
            return self.form
        if self.inputs[0].startswith("bq://"):
            return BIGQUERY
        found = {_format_of(each) for each in self.inputs}
        if len(found) != 1 or "" in found:
            raise UserError(
                "--instances_format is missing, since the names of --input do not tell it; give "
                f"one of {', '.join(FORMATS)}"
            )
        return found.pop()


def batch_body(
    name: str,
    model: str,
    data: BatchData,
    machines: Machines,
    *,
    labels: Mapping[str, str],
    service_account: str,
    kms_key: str,
) -> dict[str, Any]:
    """The body of `POST …/batchPredictionJobs`.

    Args:
        name: Of the deployment, which the job is called, too.
        model: Resource name of a model, with the version.
        data: What is predicted.
        machines: What it is predicted on; the job begins with `min_replicas` of them.
        labels: For searching and billing.
        service_account: Account that the containers run as; empty for one without rights.
        kms_key: Key that encrypts what is kept of it; empty for Google's own.
    """
    body: dict[str, Any] = {
        "displayName": name,
        "labels": {**labels, LABEL: name},
        "model": model,
        "inputConfig": {"instancesFormat": data.instances_format, **_source(data)},
        "outputConfig": _destination(data),
        "dedicatedResources": {
            "machineSpec": machines.spec,
            "startingReplicaCount": machines.min_replicas,
            "maxReplicaCount": machines.max_replicas,
        },
    }
    if instance := _instance(data):
        body["instanceConfig"] = instance
    if data.records:
        body["manualBatchTuningParameters"] = {"batchSize": data.records}
    if service_account:
        body["serviceAccount"] = service_account
    return body | ({"encryptionSpec": {"kmsKeyName": kms_key}} if kms_key else {})


def _format_of(name: str) -> str:
    ends = [end for end in _ENDS if name.endswith(end)]
    return _ENDS[max(ends, key=len)] if ends else ""


def _source(data: BatchData) -> dict[str, Any]:
    if data.instances_format == BIGQUERY:
        return {"bigquerySource": {"inputUri": data.inputs[0]}}
    return {"gcsSource": {"uris": list(data.inputs)}}


def _destination(data: BatchData) -> dict[str, Any]:
    if data.output.startswith("bq://"):
        where = {"bigqueryDestination": {"outputUri": data.output}}
        return {"predictionsFormat": BIGQUERY, **where}
    return {"predictionsFormat": "jsonl", "gcsDestination": {"outputUriPrefix": data.output}}


def _instance(data: BatchData) -> dict[str, Any]:
    # A row of a table becomes a list by default, but a server is told features by name.
    found = {"instanceType": "object"} if data.instances_format == BIGQUERY else {}
    return found | ({"keyField": data.key} if data.key else {})
