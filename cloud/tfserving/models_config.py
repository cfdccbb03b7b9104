"""What TensorFlow Serving is told of models, in protocol buffers' text."""

from collections.abc import Mapping, Sequence

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
    """Says which model is served, and which of its versions: a `ModelServerConfig`.

    Args:
        policy: specific, for `versions`; latest, for the newest as soon as it is there; or all.
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
    """Lets requests that come at once be computed together: `BatchingParameters`.

    Args:
        size: Most records of a batch; a request of more is cut into several.
    """
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
