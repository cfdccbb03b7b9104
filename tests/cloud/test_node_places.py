"""Which of N machines this is, as each platform says it."""

import json
import socket

import pytest

from cloud.node import places
from cloud.node.places import Place
from tfps.errors import UserError

HOSTS = ("10.0.0.4", "10.0.0.5", "10.0.0.6")
LISTED = Place(1, 3, HOSTS[0], HOSTS)
MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
RANKED = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.4", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        (
            {
                "SKYPILOT_NODE_IPS": "\n".join(HOSTS),
                "SKYPILOT_NODE_RANK": "1",
                "SKYPILOT_NUM_NODES": "3",
            },
            LISTED,
        ),
        ({"SM_HOSTS": json.dumps(HOSTS), "SM_CURRENT_HOST": "10.0.0.5"}, LISTED),
        (MPI | {"MASTER_ADDR": "10.0.0.4"}, Place(1, 3, "10.0.0.4")),
        (MPI | {"AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"}, Place(1, 3, "10.0.0.4")),
        (RANKED, Place(1, 3, "10.0.0.4")),
    ],
    ids=["SkyPilot", "SageMaker", "Open MPI", "Azure ML", "ranked"],
)
def test_platforms_say_which_machine_it_is(environ, place):
    assert places.find("env", environ) == place


def test_a_job_of_slurm_may_export_where_the_first_machine_is(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f"#!/bin/sh\nprintf '%s\\n' {' '.join(HOSTS)}\n")
    scontrol.chmod(0o755)
    environ = {"SLURM_JOB_NODELIST": "node[4-6]", "SLURM_NODEID": "1", "MASTER_ADDR": "10.0.0.4"}
    assert places.find("env", environ) == LISTED


@pytest.mark.parametrize("form", ["commas", "file", "hostfile"])
def test_a_list_and_a_rank(tmp_path, form):
    nodes = ",".join(HOSTS)
    if form != "commas":
        slots = " slots=2  # of two" if form == "hostfile" else ""
        text = "# the machines\n\n" + "".join(f"{host}{slots}\n" for host in HOSTS)
        (tmp_path / "hosts").write_text(text)
        nodes = str(tmp_path / "hosts")
    for environ in ({"RANK": "1"}, {"NODE_RANK": "1", "RANK": "9"}, MPI):
        assert places.find(nodes, environ) == LISTED


def test_a_machine_finds_itself_in_a_list():
    nodes = f"198.51.100.1,{socket.gethostname()},203.0.113.1"  # of RFC 5737: nobody has these
    assert places.find(nodes, {}).rank == 1


@pytest.mark.parametrize(
    ("nodes", "environ", "message"),
    [
        ("env", {}, r"--nodes=env: no variable says which machines there are .*--nodes=HOST,HOST"),
        ("env", {"MASTER_ADDR": "a"}, r"no variable says .*or RANK, WORLD_SIZE and MASTER_ADDR"),
        ("env", MPI, r"Open MPI does not say which machine is the first: set MASTER_ADDR"),
        ("env", RANKED | {"RANK": "3"}, r"MASTER_ADDR: rank 3 of 3 machines; begin with 0"),
        ("env", RANKED | {"RANK": "one"}, r"RANK=one: it must be a whole number"),
        ("env", {"SM_HOSTS": "[1", "SM_CURRENT_HOST": "a"}, r"SM_HOSTS=\[1 is no JSON list"),
        ("env", {"SM_HOSTS": '["a"]', "SM_CURRENT_HOST": "b"}, r"holds SM_CURRENT_HOST=b"),
        ("198.51.100.1,203.0.113.1", {}, r"none of them is this machine; set RANK"),
        ("127.0.0.1,127.0.0.2", {}, r"127.0.0.1, 127.0.0.2 are all this machine; set RANK"),
        ("a,a", {"RANK": "0"}, r"a machine is listed twice; start one process on each"),
        ("a,b", {"RANK": "2"}, r"--nodes and RANK: rank 2 of 2 machines"),
        ("./hosts.txt", {"RANK": "0"}, r"--nodes=\./hosts\.txt: there is no such file"),
    ],
)
def test_what_says_no_place_is_refused(nodes, environ, message):
    with pytest.raises(UserError, match=message):
        places.find(nodes, environ)
