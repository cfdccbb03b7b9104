"""Which of N machines this is: by the variables of what started it, or by a list."""

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tfps.errors import UserError

FROM_ENVIRONMENT = "env"
_SCONTROL_SECONDS = 60.0
# Of a machine where a list of them is given, the most particular first.
_RANKS = (
    "SKYPILOT_NODE_RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "NODE_RANK",
    "SLURM_NODEID",
    "RANK",
)
_KNOWN = (
    "SkyPilot's, SageMaker's, Slurm's, Open MPI's with MASTER_ADDR or Azure ML's, or RANK, "
    "WORLD_SIZE and MASTER_ADDR"
)


class Place(NamedTuple):
    """This machine among all."""

    rank: int
    nodes: int
    first: str  # host of the machine of rank 0
    hosts: tuple[str, ...] = ()  # by rank; none where only the first knows who comes


def find(nodes: str, environ: Mapping[str, str]) -> Place:
    """The place by `--nodes`: "env", a file with a host per line, or hosts separated by commas.

    Raises:
        UserError: It is not said, or what is said does not agree.
    """
    if nodes != FROM_ENVIRONMENT:
        hosts = tuple(host for host, *_ in listed("--nodes", nodes))
        return _of_hosts(hosts, environ)
    for names, read in _READERS.items():
        if all(name in environ for name in names):
            return _checked(read(environ), names[0])
    raise UserError(
        f"--nodes=env: no variable says which machines there are ({_KNOWN}); give "
        "--nodes=HOST,HOST or --nodes=FILE on each of them"
    )


def _checked(place: Place, source: str) -> Place:
    if not 0 <= place.rank < place.nodes:
        raise UserError(f"{source}: rank {place.rank} of {place.nodes} machines; begin with 0")
    if len(set(place.hosts)) < len(place.hosts):
        raise UserError(f"{source}: a machine is listed twice; start one process on each")
    return place


def _sky(environ: Mapping[str, str]) -> Place:
    hosts = tuple(environ["SKYPILOT_NODE_IPS"].split())
    return _of_list(hosts, _number(environ, "SKYPILOT_NODE_RANK"))


def _sagemaker(environ: Mapping[str, str]) -> Place:
    try:
        hosts = tuple(map(str, json.loads(environ["SM_HOSTS"])))
        return _of_list(hosts, hosts.index(environ.get("SM_CURRENT_HOST", "")))
    except (TypeError, ValueError):
        raise UserError(
            f"SM_HOSTS={environ['SM_HOSTS']} is no JSON list that holds "
            f"SM_CURRENT_HOST={environ.get('SM_CURRENT_HOST')}"
        ) from None


def _slurm(environ: Mapping[str, str]) -> Place:
    command = ["scontrol", "show", "hostnames", environ["SLURM_JOB_NODELIST"]]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, timeout=_SCONTROL_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"{' '.join(command)} fails ({error}); give --nodes=HOST,HOST instead"
        ) from None
    return _of_list(tuple(said.split()), _number(environ, "SLURM_NODEID"))


def _mpi(environ: Mapping[str, str]) -> Place:
    rank, nodes = (_number(environ, f"OMPI_COMM_WORLD_{name}") for name in ("RANK", "SIZE"))
    first = environ.get("MASTER_ADDR") or environ.get("AZ_BATCH_MASTER_NODE", "").partition(":")[0]
    if not first:
        raise UserError(
            "Open MPI does not say which machine is the first: set MASTER_ADDR (mpirun -x "
            "MASTER_ADDR=HOST), or give --nodes=HOSTFILE"
        )
    return Place(rank, nodes, first)


def _ranked(environ: Mapping[str, str]) -> Place:
    return Place(_number(environ, "RANK"), _number(environ, "WORLD_SIZE"), environ["MASTER_ADDR"])


# By the variables that are there on a platform.
_READERS: Mapping[tuple[str, ...], Callable[[Mapping[str, str]], Place]] = {
    ("SKYPILOT_NODE_IPS",): _sky,
    ("SM_HOSTS",): _sagemaker,
    ("OMPI_COMM_WORLD_RANK",): _mpi,
    ("MASTER_ADDR", "RANK", "WORLD_SIZE"): _ranked,  # jobs of Slurm may export the first alone
    ("SLURM_JOB_NODELIST",): _slurm,
}


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not (text.isascii() and text.isdigit()):
        raise UserError(f"{name}={text}: it must be a whole number, or give --nodes=HOST,HOST")
    return int(text)


def _of_list(hosts: tuple[str, ...], rank: int) -> Place:
    return Place(rank, len(hosts), hosts[0] if hosts else "", hosts)


def listed(flag: str, named: str) -> list[list[str]]:
    """The machines of a flag, each with its words: lines of a file, or what commas separate."""
    if not os.path.isfile(named):
        if os.sep in named:
            raise UserError(f"{flag}={named}: there is no such file")
        lines = named.split(",")
    else:
        try:
            with open(named, encoding="utf-8") as file:
                lines = [line.partition("#")[0] for line in file]
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{flag}={named} cannot be read: {error}") from None
    return [words for line in lines if (words := line.split())]


def _of_hosts(hosts: tuple[str, ...], environ: Mapping[str, str]) -> Place:
    named = next((name for name in _RANKS if name in environ), None)
    if named:
        return _checked(_of_list(hosts, _number(environ, named)), f"--nodes and {named}")
    mine = [rank for rank, host in enumerate(hosts) if _is_here(host)]
    if len(mine) != 1:
        found = ", ".join(hosts[rank] for rank in mine)
        which = f"{found} are all this machine" if mine else "none of them is this machine"
        raise UserError(f"--nodes={','.join(hosts)}: {which}; set RANK, from 0 on, on each")
    return _checked(_of_list(hosts, mine[0]), "--nodes")


def _is_here(host: str) -> bool:
    """Whether a host is this machine: whether one can listen at its address."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, _, _, address in found:
        with socket.socket(family, kind) as probe, contextlib.suppress(OSError):
            probe.bind(address)
            return True
    return False
