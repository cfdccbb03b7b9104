"""Values of TF_CONFIG."""

import json

from tfps.cluster.tf_config import decode as decode_all

SPEC = {"chief": ["c:2222"], "worker": ["w0:2222", "w1:2222"], "ps": ["p0:2222", "p1:2222"]}
TASK = {"type": "worker", "index": 1}


def encoded(spec=SPEC, task=TASK, **more):
    return json.dumps({"cluster": spec, "task": task, **more})


def decode(text, variable="TF_CONFIG"):
    return decode_all({variable: text})


def spec_with(**jobs):
    return {key: hosts for key, hosts in (SPEC | jobs).items() if hosts is not None}


def hosts(address):
    """A TF_CONFIG whose first worker has this address."""
    return encoded(spec_with(worker=[address, "w1:2222"]))


def task(**fields):
    return encoded(task=fields)
