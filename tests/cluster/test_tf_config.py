import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from cloud import cluster_in_file
from tests.cluster_texts import SPEC, TASK, encoded
from tests.cluster_texts import decode as decode_text
from tfps.cluster.tf_config import MOST_BYTES, decode
from tfps.errors import UserError

WORKER = json.dumps({"task": TASK})


def decoded(path, tf_config=WORKER):
    return decode({"TF_CONFIG": tf_config, "TF_CONFIG_FILE": str(path)})


def test_a_cluster_in_a_file_is_that_of_the_variable(tmp_path):
    path = tmp_path / "cluster.json"
    task, text = cluster_in_file.split(encoded(SPEC | {"evaluator": ["e:1"]}))
    path.write_text(text)
    assert decoded(path, task) == decode_text(encoded(SPEC | {"evaluator": ["e:1"]}))


def test_2000_long_addresses_fit_where_a_variable_does_not(tmp_path):
    """Which Linux, TensorFlow and this program take."""
    name = "recommendations-ranking-weekly-retrain-1"
    hosts = [f"{name}-worker-{i}-0.{name}:2222" for i in range(1900)]
    ps = [host.replace("worker", "ps") for host in hosts[:99]]
    spec = {"chief": [f"{name}-chief-0-0.{name}:2222"], "worker": hosts, "ps": ps}
    text = encoded(spec)
    environ = {name: each for name, each in os.environ.items() if name != "TF_CONFIG"}
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run([sys.executable, "-V"], env={**environ, "TF_CONFIG": text}, check=True)
    path = tmp_path / "cluster.json"
    task, content = cluster_in_file.split(text)
    path.write_text(content)
    code = (
        "import os; from tfps.cluster.tf_config import decode; found = decode(os.environ)\n"
        "print(found.name, found.address, len(found.ps))"
    )
    own = {"TF_CONFIG": task, "TF_CONFIG_FILE": str(path)}
    said = subprocess.run(
        [sys.executable, "-c", code], env=environ | own, check=True, capture_output=True, text=True
    )
    assert said.stdout.split() == ["worker", "1", "of", "1900", hosts[1], "99"]
    made = tf.train.ClusterSpec(decoded(path).spec())
    assert (made.num_tasks("worker"), made.task_address("ps", 98)) == (1900, ps[98])


@pytest.mark.parametrize(
    ("content", "tf_config", "message"),
    [
        ("", WORKER, r"TF_CONFIG_FILE=.*cluster.json is empty"),
        ("{'a'", WORKER, "TF_CONFIG_FILE=.*cluster.json is not JSON"),
        ("[]", WORKER, "TF_CONFIG_FILE=.*cluster.json is a list"),
        ("{}", WORKER, "TF_CONFIG_FILE=.*cluster.json has no 'cluster'"),
        ('{"cluster": []}', WORKER, "TF_CONFIG_FILE=.*cluster is a list"),
        ('{"cluster": {"worker": ["a:1"]}}', WORKER, "TF_CONFIG: task.index is 1, but"),
        ('{"cluster": {"boss": ["a:1"]}}', WORKER, "TF_CONFIG: cluster.boss is no job"),
        ('{"cluster": {}}', encoded(), "both TF_CONFIG and TF_CONFIG_FILE=.* give a cluster"),
        ("\xff", WORKER, "TF_CONFIG_FILE=.* is not UTF-8; give TF_CONFIG_FILE the path"),
        (
            " " * (MOST_BYTES + 1),
            WORKER,
            "has more than 1048576 bytes, so it is no cluster",
        ),
    ],
)
def test_what_is_no_cluster_is_refused(tmp_path, content, tf_config, message):
    path = tmp_path / "cluster.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=message) as error:
        decoded(path, tf_config)
    assert len(str(error.value).splitlines()) == 1


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none", tmp_path, tmp_path / "pipe", "", "\0"):
        with pytest.raises(UserError, match=r"TF_CONFIG_FILE=.* (cannot be read|no regular file)"):
            decoded(path)
    with pytest.raises(UserError, match="TF_CONFIG does not say which task this is"):
        decode({"TF_CONFIG_FILE": "x"})
