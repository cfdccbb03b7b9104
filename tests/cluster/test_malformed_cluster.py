import json

import pytest

from tests.cluster_texts import SPEC, decode, encoded, hosts, spec_with, task
from tfps.errors import UserError

# Name, TF_CONFIG, what the message names, how it says to fix it.
MALFORMED = [
    ("empty", "", "TF_CONFIG is empty", "unset it"),
    ("blank", "  \n", "TF_CONFIG is empty", "unset it"),
    ("not json", "{'cluster': {}}", "not JSON", "quote it"),
    ("cut short", encoded()[:-1], "not JSON", "quote it"),
    ("text after it", encoded() + "x", "not JSON", "quote it"),
    ("deep nesting", "[" * 100_000, "not JSON", "quote it"),
    ("a huge number", '{"cluster": ' + "1" * 5000 + "}", "not JSON", "quote it"),
    ("a list", "[]", "TF_CONFIG is a list", "must be a JSON object"),
    ("a string", '"chief"', "TF_CONFIG is a string", "must be a JSON object"),
    ("null", "null", "TF_CONFIG is null", "must be a JSON object"),
    ("a number", "3", "TF_CONFIG is a number", "must be a JSON object"),
    ("empty object", "{}", "no 'cluster'", "add 'cluster'"),
    ("no cluster", '{"task": {}}', "no 'cluster' (its keys: 'task')", "add 'cluster'"),
    ("cluster is null", encoded(None), "cluster is null", "must be an object"),
    ("cluster is a list", encoded(["c:1"]), "cluster is a list", "must be an object"),
    ("cluster is a string", encoded("c:1"), "cluster is a string", "must be an object"),
    ("cluster is empty", encoded({}), "cluster is empty", "add its jobs"),
    ("a key twice", '{"cluster": {"ps": [], "ps": []}}', "'ps' stands twice", "keep one"),
    ("rpc_layer", encoded(rpc_layer="grpc+verbs"), "rpc_layer is 'grpc+verbs'", "leave it out"),
    ("no task", json.dumps({"cluster": SPEC}), "no 'task'", "add 'task'"),
    ("task is null", encoded(task=None), "task is null", "must be an object"),
    ("task is a list", encoded(task=["worker", 0]), "task is a list", "must be an object"),
    ("task is a string", encoded(task="worker"), "task is a string", "must be an object"),
    ("no type", task(index=0), "task has no type", "add one of chief, worker"),
    ("unknown type", task(type="wroker", index=0), "task.type is 'wroker'", "write one of chief"),
    ("type in capitals", task(type="Chief", index=0), "task.type is 'Chief'", "write one of"),
    ("type is null", task(type=None, index=0), "task.type is None", "write one of"),
    ("type is a list", task(type=["ps"], index=0), "task.type is ['ps']", "write one of"),
    ("pool as type", task(type="workerpool0", index=0), "task.type is 'workerpool0'", "write one"),
    ("no index", task(type="ps"), "task has no index", 'add "index"'),
    ("negative index", task(type="ps", index=-1), "task.index is -1", "write 0 or more"),
    ("quoted index", task(type="ps", index="0"), "task.index is '0'", "unquoted"),
    ("index is a fraction", task(type="ps", index=0.5), "task.index is 0.5", "whole number"),
    ("index is a boolean", task(type="ps", index=True), "task.index is True", "whole number"),
    ("index is null", task(type="ps", index=None), "task.index is None", "whole number"),
    ("index too large", task(type="ps", index=2), "task.index is 2", "an index from 0 to 1"),
    ("second chief", task(type="chief", index=1), "task.index is 1", "an index from 0 to 0"),
    ("evaluator -1", task(type="evaluator", index=-1), "task.index is -1", "write 0 or more"),
    (
        "type not in cluster",
        encoded(spec_with(ps=None), {"type": "ps", "index": 0}),
        "cluster has no ps",
        "add cluster.ps",
    ),
    (
        "master, but the cluster has none",
        encoded({"worker": ["w:1"]}, {"type": "master", "index": 0}),
        "cluster has no master",
        "add cluster.master",
    ),
    ("empty job", encoded(spec_with(worker=[])), "cluster.worker is empty", "list its addresses"),
    ("job is a string", encoded(spec_with(ps="p:1")), "cluster.ps is a string", "must be a list"),
    ("job is null", encoded({"ps": None}), "cluster.ps is null", "must be a list"),
    ("job is a number", encoded(spec_with(ps=2)), "cluster.ps is a number", "must be a list"),
    (
        "sparse map",
        encoded(spec_with(worker={"1": "w:1"})),
        "cluster.worker is an object",
        "give the full list",
    ),
    ("host is a number", hosts(2222), "cluster.worker[0] is a number", "must be a string"),
    ("host is null", hosts(None), "cluster.worker[0] is null", "must be a string"),
    ("host is a list", hosts(["w", 1]), "cluster.worker[0] is a list", "must be a string"),
    ("empty address", hosts(""), "cluster.worker[0]: ''", 'write it as "host:port"'),
    ("no port", hosts("w0"), "cluster.worker[0]: 'w0' has no port", '"host:port"'),
    ("no port, IPv6", hosts("[::1]"), "cluster.worker[0]: '[::1]' has no port", '"host:port"'),
    ("no host", hosts(":2222"), "cluster.worker[0]: ':2222' has no host", '"host:port"'),
    ("empty port", hosts("w0:"), "cluster.worker[0]: 'w0:' has the port ''", "from 1 to 65535"),
    ("port is a word", hosts("w0:http"), "cluster.worker[0]: 'w0:http'", "from 1 to 65535"),
    ("port 0", hosts("w0:0"), "cluster.worker[0]: 'w0:0'", "from 1 to 65535"),
    ("port 65536", hosts("w0:65536"), "cluster.worker[0]: 'w0:65536'", "from 1 to 65535"),
    ("negative port", hosts("w0:-1"), "cluster.worker[0]: 'w0:-1'", "from 1 to 65535"),
    ("signed port", hosts("w0:+1"), "cluster.worker[0]: 'w0:+1'", "from 1 to 65535"),
    ("foreign digits", hosts("w0:٣"), "cluster.worker[0]", "from 1 to 65535"),
    ("long port", hosts("w0:" + "9" * 5000), "cluster.worker[0]", "from 1 to 65535"),
    ("URL", hosts("grpc://w0:2222"), "cluster.worker[0]", 'write only "host:port"'),
    ("path", hosts("w0:2222/x"), "cluster.worker[0]", 'write only "host:port"'),
    ("bare IPv6", hosts("::1:2222"), "cluster.worker[0]: '::1'", "[IPv6]"),
    ("space before", hosts(" w0:2222"), "cluster.worker[0]: ' w0'", "write a name"),
    ("newline after", hosts("w0:2222\n"), "cluster.worker[0]", "from 1 to 65535"),
    ("two at once", hosts("w0:1,w1:2"), "cluster.worker[0]: 'w0:1,w1'", "write a name"),
    (
        "duplicate in a job",
        encoded(spec_with(worker=["w:1", "w:1"])),
        "cluster.worker[1]: w:1 is also cluster.worker[0]",
        "own address",
    ),
    (
        "duplicate across jobs",
        encoded(spec_with(ps=["c:2222"])),
        "cluster.ps[0]: c:2222 is also cluster.chief[0]",
        "own address",
    ),
    (
        "duplicate in other capitals",
        encoded(spec_with(ps=["C.:02222"])),
        "cluster.ps[0]: C.:02222 is also cluster.chief[0]",
        "own address",
    ),
    (
        "unknown job",
        encoded(spec_with(coordinator=["x:1"])),
        "cluster.coordinator is no job",
        "rename it to one of chief",
    ),
    (
        "pool as job",
        encoded({"workerpool0": ["x:1"]}),
        "cluster.workerpool0 is no job",
        "rename it to one of chief",
    ),
    (
        "master and chief",
        encoded(spec_with(master=["m:1"])),
        "both chief and master",
        "keep chief",
    ),
    (
        "two chiefs",
        encoded(spec_with(chief=["a:1", "b:1"])),
        "cluster.chief has 2 addresses",
        "keep exactly one",
    ),
    (
        "two chiefs alone",
        encoded({"chief": ["a:1", "b:1"]}, {"type": "chief", "index": 0}),
        "cluster.chief has 2 addresses",
        "keep exactly one",
    ),
    (
        "ps alone",
        encoded({"ps": ["p:1"]}, {"type": "ps", "index": 0}),
        "no chief",
        "add cluster.ch",
    ),
    (
        "no chief, and a worker too far",
        encoded(spec_with(chief=None), {"type": "worker", "index": 3}),
        "task.index is 3, but cluster.worker has 3 address(es)",
        "list all addresses",
    ),
    (
        "no chief, and no port for the worker next to it",
        encoded({"worker": ["w:65535"], "ps": ["p:1"]}),
        "the chief's port, 65535, is the last",
        "--chief_worker_port",
    ),
    (
        "no workers",
        encoded(spec_with(worker=None), {"type": "ps", "index": 0}),
        "cluster.ps has no workers",
        "add cluster.worker",
    ),
    ("second evaluator", task(type="evaluator", index=1), "one evaluator at most", "with index 0"),
    (
        "two evaluators",
        encoded(spec_with(evaluator=["e:1", "e:2"])),
        "one evaluator at most",
        "start it alone",
    ),
    (
        "malformed evaluator",
        encoded(spec_with(evaluator=["e"])),
        "cluster.evaluator[0]: 'e' has no port",
        '"host:port"',
    ),
]


@pytest.mark.parametrize(
    ("text", "key", "hint"), [pytest.param(*c[1:], id=c[0]) for c in MALFORMED]
)
def test_malformed_tf_config(text, key, hint):
    with pytest.raises(UserError) as error:
        decode(text)
    message = str(error.value)
    assert message.startswith("TF_CONFIG")
    assert key in message
    assert hint in message
    assert "\n" not in message.strip("\n")


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("{", "CLUSTER_SPEC is not JSON", "quote it"),
        ("{}", "CLUSTER_SPEC has no 'cluster'", "workerpool1"),
        (encoded(), "cluster.chief is no job", "workerpool0, workerpool1"),
        (
            encoded({"workerpool4": ["x:1"]}),
            "cluster.workerpool4 is no job",
            "rename it to one of workerpool0",
        ),
        (
            encoded({"workerpool0": ["x:1"]}, {"type": "chief", "index": 0}),
            "task.type is 'chief'",
            "write one of workerpool0",
        ),
        (
            encoded(
                {"workerpool0": ["x:1"], "workerpool2": ["p:1"]},
                {"type": "workerpool0", "index": 0},
            ),
            "cluster.workerpool2 has no workers",
            "add cluster.workerpool1",
        ),
        (
            encoded({"workerpool1": ["w:1"]}, {"type": "workerpool1", "index": 0}),
            "no workerpool0",
            "add cluster.workerpool0",
        ),
    ],
)
def test_malformed_cluster_spec(text, key, hint):
    with pytest.raises(UserError) as error:
        decode(text, "CLUSTER_SPEC")
    message = str(error.value)
    assert message.startswith("CLUSTER_SPEC")
    assert key in message
    assert hint in message
