"""`JOB_DIR/cluster.json`: where the tasks of a job are reached, for programs beside them."""

import json
import posixpath
from collections.abc import Mapping, Sequence

from tfps.errors import UserError
from tfps.job_dir.task_name import TaskName
from tfps.storage import atomic_file, files

_FILE = "cluster.json"


def write(job_dir: str, addresses: Mapping[str, Sequence[str]]) -> None:
    """Tells where the tasks of a run are.

    Args:
        addresses: `HOST:PORT` by job, in the order of the tasks; nothing for one process.
    """
    by_job = {job: list(some) for job, some in addresses.items()}
    atomic_file.write(posixpath.join(job_dir, _FILE), json.dumps(by_job, indent=1) + "\n")


def read(job_dir: str) -> dict[TaskName, str]:
    """Where the tasks of a job are, as its last chief has told."""
    path = posixpath.join(job_dir, _FILE)
    try:
        by_job = json.loads(files.read(path))
        found = {
            TaskName(job, index): address
            for job, some in by_job.items()
            for index, address in enumerate(some)
        }
        if not all(isinstance(address, str) for address in found.values()):
            raise TypeError("an address is no text")
    except FileNotFoundError:
        raise UserError(f"--job_dir={job_dir} holds no {_FILE}: no job runs there") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); start the job again") from None
    return found
