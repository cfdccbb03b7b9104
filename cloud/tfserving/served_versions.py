"""Which versions of a model TensorFlow Serving is to have."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

from cloud import flag_texts
from cloud.deployment.served_model import ServedModel
from cloud.tfserving.models_config import ALL, LATEST, SPECIFIC
from tfps.errors import UserError


@dataclasses.dataclass(frozen=True)
class ServedVersions:
    """A policy, and names for some versions."""

    policy: str
    labels: Mapping[str, int]

    @classmethod
    def parse(cls, policy: str, labels: Sequence[str]) -> Self:
        """Reads the flags."""
        pairs = flag_texts.pairs("--version_label", labels)
        found = {
            label: flag_texts.positive(f"--version_label={label}", text)
            for label, text in pairs.items()
        }
        return cls(policy, found)

    def numbers(self, model: ServedModel) -> tuple[int, ...]:
        """Numbers of the versions that a server has now, in their order."""
        held = {
            SPECIFIC: {model.version, *self.labels.values()},
            LATEST: {max(model.versions)},
            ALL: set(model.versions),
        }[self.policy]
        if model.version not in held:
            raise UserError(
                f"--version={model.version}: with --version_policy=latest version "
                f"{max(model.versions)} is served; give --version_policy=specific"
            )
        for label, version in self.labels.items():
            if version not in model.versions:
                there = ", ".join(map(str, model.versions))
                raise UserError(
                    f"--version_label={label}={version}: {model.base} has the versions {there}"
                )
            if version not in held:
                raise UserError(
                    f"--version_label={label}={version}: with --version_policy=latest only version "
                    f"{max(model.versions)} is served; give --version_policy=specific"
                )
        return tuple(sorted(held))
