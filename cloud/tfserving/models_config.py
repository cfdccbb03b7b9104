"""What TensorFlow Serving is told of models, in protocol buffers' text."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

from cloud import command_line
from cloud.deployment.served_model import ServedModel
from tfps.errors import UserError

SPECIFIC, LATEST, ALL = POLICIES = ("specific", "latest", "all")
METRICS_PATH = "/monitoring/prometheus/metrics"
_BATCH_MICROSECONDS = 2000  # for which the first request of a batch waits for others


def models_config(
    name: str,
    base: str,
    policy: str,
    versions: Sequence[int] = (),
    labels: Mapping[str, int] | None = None,
) -> str:
    """Names the model to serve, and which of its versions: a `ModelServerConfig`.

    The policy is specific, for `versions`; latest, for the newest as soon as it is there; or all.
    """
    chosen = [f"        versions: {version}" for version in versions]
    lines = [
        "model_config_list {",
        "  config {",
        f"    name: {_quoted(name)}",
        f"    base_path: {_quoted(base)}",
        '    model_platform: "tensorflow"',
        "    model_version_policy {",
        *([f"      {policy} {{", *chosen, "      }"] if chosen else [f"      {policy} {{}}"]),
        "    }",
    ]
    for label, version in (labels or {}).items():
        lines.append(f"    version_labels {{ key: {_quoted(label)} value: {version} }}")
    return "\n".join([*lines, "  }", "}", ""])


def monitoring_config() -> str:
    """Lets Prometheus ask at `METRICS_PATH`: a `MonitoringConfig`."""
    return f"prometheus_config {{\n  enable: true\n  path: {_quoted(METRICS_PATH)}\n}}\n"


def batching_parameters(size: int) -> str:
    """Batches concurrent requests, up to `size` records each: `BatchingParameters`."""
    return (
        f"max_batch_size {{ value: {size} }}\n"
        f"max_execution_batch_size {{ value: {size} }}\n"
        "enable_large_batch_splitting { value: true }\n"
        f"batch_timeout_micros {{ value: {_BATCH_MICROSECONDS} }}\n"
    )


def _quoted(text: str) -> str:
    """Text as protocol buffers write it, every byte that is not plain in octal."""
    plain = (
        chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}"
        for byte in text.encode("utf-8", "surrogateescape")
    )
    return f'"{"".join(plain)}"'


@dataclasses.dataclass(frozen=True)
class ServedVersions:
    """A policy, and names for some versions."""

    policy: str
    labels: Mapping[str, int]

    @classmethod
    def parse(cls, policy: str, labels: Sequence[str]) -> Self:
        pairs = command_line.pairs("--version_label", labels)
        found = {
            label: command_line.positive(f"--version_label={label}", text)
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
