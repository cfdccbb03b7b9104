"""The revisions of a Deployment, each of which keeps its version of the model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cloud.kubernetes.serving import names

_REVISION = "deployment.kubernetes.io/revision"
_HASH = "pod-template-hash"  # which Kubernetes adds to the pods of each revision


class Revision(NamedTuple):
    """What servers were at a time."""

    number: int
    template: Mapping[str, Any]

    @property
    def model(self) -> str:
        """Directory of the version that they serve."""
        return str(self.template["metadata"].get("annotations", {}).get(names.MODEL, ""))

    @property
    def config_maps(self) -> Iterator[str]:
        """Names of the ConfigMaps that they need."""
        for volume in self.template["spec"].get("volumes", ()):
            if "configMap" in volume:
                yield volume["configMap"]["name"]


def revisions(
    deployment: Mapping[str, Any], replica_sets: Sequence[Mapping[str, Any]]
) -> list[Revision]:
    """The revisions that Kubernetes has kept, in their order."""
    uid = deployment["metadata"]["uid"]
    found = []
    for each in replica_sets:
        owners = each["metadata"].get("ownerReferences") or ()
        number = (each["metadata"].get("annotations") or {}).get(_REVISION, "")
        if number.isdecimal() and uid in [owner["uid"] for owner in owners]:
            found.append(Revision(int(number), _without_hash(each["spec"]["template"])))
    return sorted(found, key=lambda revision: revision.number)


def _without_hash(template: Mapping[str, Any]) -> dict[str, Any]:
    """A template as a Deployment has it."""
    metadata = template["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if key != _HASH}
    kept = {"labels": labels, "annotations": metadata.get("annotations") or {}}
    return {**template, "metadata": kept}
