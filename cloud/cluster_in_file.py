"""Tells tasks their cluster in a file, where TF_CONFIG would be too long for their environment."""

import json

# Of a TF_CONFIG that holds the cluster. Linux gives a process no variable of 128 KiB or more;
# Kubernetes and Slurm keep copies of the environment of every task.
MOST_BYTES = 16 << 10


def is_needed(cluster: str) -> bool:
    return len(cluster) > MOST_BYTES


def split(tf_config: str) -> tuple[str, str]:
    """Divides a TF_CONFIG."""
    config = json.loads(tf_config)
    return json.dumps({"task": config["task"]}), text(config["cluster"])


def text(cluster: dict[str, list[str]]) -> str:
    """The text of the file for a cluster: addresses by job."""
    return json.dumps({"cluster": cluster}, separators=(",", ":"))
