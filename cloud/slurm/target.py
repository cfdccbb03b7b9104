"""A job on Slurm: `--target=slurm`."""

import dataclasses

from absl import flags

from cloud.job_spec import JobSpec
from cloud.remote_target import PollOptions, RemoteTarget
from cloud.slurm.script import Allocation, script
from cloud.slurm.sender import SlurmSender
from cloud.target import Request


def define_flags(values: flags.FlagValues) -> None:
    def integer(name: str, default: int, least: int, text: str) -> None:
        flags.DEFINE_integer(name, default, f"Slurm: {text}", lower_bound=least, flag_values=values)

    def string(name: str, default: str, text: str) -> None:
        flags.DEFINE_string(name, default, f"Slurm: {text}", flag_values=values)

    integer("nodes", 0, 0, "number of nodes; 0 for one per worker.")
    integer("first_port", 0, 0, "of as many as there are tasks; 0: by the job's number.")
    string("partition", "", "partition of the nodes.")
    string("account", "", "account that pays.")
    string("qos", "", "quality of service.")
    string("python", Allocation.python, "interpreter, on all nodes.")
    flags.DEFINE_multi_string(
        "sbatch",
        [],
        "Slurm: OPTION or OPTION=VALUE, a further option of sbatch, any number of times, such as "
        "reservation=NAME, exclude=NODES or mail-type=END.",
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "setup",
        [],
        "Slurm: a line of bash that the job's script runs first, any number of times, such as "
        "'module load python/3.11'; one that fails ends the job.",
        flag_values=values,
    )


def from_flags(values: flags.FlagValues) -> "SlurmTarget":
    allocation = Allocation(
        values.nodes,
        values.partition,
        values.account,
        values.qos,
        values.first_port,
        values.python,
        values.sbatch,
        values.setup,
    )
    # What tasks write is in files that this program reads, as soon as the file system shows it.
    polling = PollOptions(values.wait_seconds, values.poll_seconds, last_looks=1)
    return SlurmTarget(polling, allocation)


@dataclasses.dataclass
class SlurmTarget(RemoteTarget):
    """The Slurm cluster whose commands are on this machine."""

    name = "slurm"

    allocation: Allocation

    @property
    def again(self) -> str:
        return f"--target={self.name}"

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        return (script(spec, self.allocation),)

    def sender(self) -> SlurmSender:
        return SlurmSender()
