"""A job on Slurm: `--target=slurm`."""

from absl import flags

from cloud.job_spec import JobSpec
from cloud.remote_target import Patience, RemoteTarget
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


def from_flags(values: flags.FlagValues) -> "SlurmTarget":
    allocation = Allocation(
        values.nodes,
        values.partition,
        values.account,
        values.qos,
        values.first_port,
        values.python,
    )
    # What tasks write is in files that this program reads, as soon as the file system shows it.
    return SlurmTarget(allocation, Patience(values.wait_seconds, values.poll_seconds, last_looks=1))


class SlurmTarget(RemoteTarget):
    """The Slurm cluster whose commands are on this machine."""

    name = "slurm"

    def __init__(self, allocation: Allocation, patience: Patience):
        super().__init__(patience)
        self._allocation = allocation

    @property
    def again(self) -> str:
        return f"--target={self.name}"

    def render(self, spec: JobSpec) -> tuple[Request, ...]:
        return (script(spec, self._allocation),)

    def sender(self) -> SlurmSender:
        return SlurmSender()
