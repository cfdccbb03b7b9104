"""Ways to hang: each ends with a diagnosis that names the right task, soon after its limit."""

import dataclasses
import pathlib
import re
import time
from collections.abc import Callable

import pytest
from cluster_process import Program, read_report, trainer_flags
from datasets_on_disk import Datasets
from hanging_tasks import (
    CHIEF,
    CONNECT,
    PS_WAIT,
    SILENT,
    STALL,
    black_hole_in_training,
    elsewhere,
    hanging_storage,
    larger_cluster,
    never_started,
    no_chief,
    other_program,
    other_program_for_chief,
    other_version,
    stopped_before,
    stopped_chief,
    stopped_in_evaluation,
    stopped_in_training,
    swapped,
    training,
)
from separate_tasks import SeparateTasks

from tests import peers

SLOW_TRAINING = ("--train.batch_size=8", "--task.dim=2")  # an epoch lasts seconds
RECORDS, EPOCHS = 12_000, 4
LATE_SECONDS = 30  # after the limit, at most, on a busy machine
SILENCE = "it accepted connections but did not answer"


@dataclasses.dataclass(frozen=True)
class Hang:
    """A fault and what must be said of it.

    Attributes:
        fault: Starts tasks, has the fault happen, and returns the task that must end.
        limit: After the fault, seconds.
        message: Parts of the error; `{worker 0}` stands for the task's address.
        code: Exit code.
        workers: Number of workers.
    """

    fault: Callable[[SeparateTasks], Program]
    limit: float
    message: tuple[str, ...]
    code: int = 3
    workers: int = 1


REFUSED = "its port refused connections (start it, or look in its log why it ended"
HANGS = {
    "a worker that was never started": Hang(
        never_started("worker 0"), CONNECT, (f"worker 0 at {{worker 0}}: {REFUSED}",), 2
    ),
    "a ps that was never started": Hang(
        never_started("ps 0"), CONNECT, (f"ps 0 at {{ps 0}}: {REFUSED}",), 2
    ),
    "a worker at another port": Hang(
        elsewhere(worker_0="127.0.0.1:20001"),
        CONNECT,
        (f"worker 0 at 127.0.0.1:20001: {REFUSED}",),
        2,
    ),
    "a ps whose host's name does not resolve": Hang(
        elsewhere(ps_0="no-such-host.invalid:4000"),
        CONNECT,
        ("ps 0 at no-such-host.invalid:4000: its host's name did not resolve (correct its host",),
        2,
    ),
    "a socket that accepts and says nothing": Hang(
        other_program("worker 0", peers.stay_silent),
        CONNECT,
        (f"worker 0 at {{worker 0}}: {SILENCE} (if its process was stopped",),
        2,
    ),
    "a web server at a ps's address": Hang(
        other_program("ps 0", peers.speak_http1),
        CONNECT,
        ("ps 0 at {ps 0}: what answered at its address was no TensorFlow server (end the program",),
        2,
    ),
    "a worker stopped before the chief came": Hang(
        stopped_before("worker 0"), CONNECT, (f"worker 0 at {{worker 0}}: {SILENCE}",), 2
    ),
    "a ps stopped before the chief came": Hang(
        stopped_before("ps 0"), CONNECT, (f"ps 0 at {{ps 0}}: {SILENCE}",), 2
    ),
    "workers in another order": Hang(
        swapped,
        CONNECT,
        (
            "worker 0 at {worker 1}: it says it is worker 1; give all tasks the same cluster",
            "worker 1 at {worker 0}: it says it is worker 0",
        ),
        2,
        workers=2,
    ),
    "a worker of a larger cluster": Hang(
        larger_cluster,
        CONNECT,
        ("worker 0 at {worker 0}: its TF_CONFIG has 1 chief, 1 ps, 2 worker, the chief's",),
        2,
    ),
    "a worker with another TensorFlow": Hang(
        other_version, CONNECT, ("worker 0 at {worker 0}: it runs TensorFlow 2.9.1, the chief",), 2
    ),
    "the only worker stopped in training": Hang(
        stopped_in_training("worker 0"),
        STALL,
        # Between two leases it has none to name.
        ("no batch was trained for ", "worker 0 at {worker 0}", SILENCE),
    ),
    "a ps stopped in training": Hang(
        stopped_in_training("ps 0"),
        SILENT + PS_WAIT,
        (f"ps 0 at {{ps 0}} did not come back within 4 s (ps 0: {SILENCE}, if its process",),
    ),
    "lost packets before the only worker": Hang(
        black_hole_in_training("worker 0"),
        STALL,
        # Between two leases it has none to name.
        ("no batch was trained for ", "worker 0 at {worker 0}", SILENCE),
    ),
    "lost packets before a ps": Hang(
        black_hole_in_training("ps 0"),
        SILENT + PS_WAIT,
        (f"ps 0 at {{ps 0}} did not come back within 4 s (ps 0: {SILENCE}, if its process",),
    ),
    "the only worker stopped in evaluation": Hang(
        stopped_in_evaluation,
        STALL,
        ("no record was evaluated for ", f"worker 0 at {{worker 0}}: {SILENCE}"),
    ),
    "storage that does not answer": Hang(
        hanging_storage,
        STALL,
        (
            "no batch was trained for ",
            "worker 0 at {worker 0} has held epoch ",
            "it answers (look in its log, and whether it can read the shard and reach every ps)",
        ),
    ),
    "a worker whose chief never starts": Hang(
        no_chief("worker 0"),
        CHIEF,
        ("the chief did not appear at {chief 0} within 4 s (its port refused connections)",),
    ),
    "a ps whose chief never starts": Hang(
        no_chief("ps 0"), CHIEF, ("the chief did not appear at {chief 0} within 4 s",)
    ),
    "a worker that finds another program in its chief's place": Hang(
        other_program_for_chief,
        CHIEF,
        ("did not appear at {chief 0}", "was no TensorFlow server); end the program that has its"),
    ),
    "a worker whose chief is stopped": Hang(
        stopped_chief("worker 0"),
        CHIEF,
        (f"the chief at {{chief 0}} has been away for 4 s without being done ({SILENCE})",),
    ),
    "a ps whose chief is stopped": Hang(
        stopped_chief("ps 0"), CHIEF, ("the chief at {chief 0} has been away for 4 s", SILENCE)
    ),
}
QUICK = "a worker whose chief never starts"


@pytest.fixture(name="start")
def start_fixture(datasets: Datasets, tmp_path: pathlib.Path) -> Callable[[int], SeparateTasks]:
    def start(workers: int) -> SeparateTasks:
        data = tmp_path / "data"
        data.mkdir()
        for file in datasets.long.iterdir():
            (data / file.name).write_bytes(file.read_bytes())
        flags = trainer_flags(data, tmp_path / "job", *SLOW_TRAINING)
        return SeparateTasks(flags, tmp_path / "job", workers)

    return start


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == QUICK else pytest.mark.slow) for n in HANGS]
)
def test_a_hang_ends_with_a_diagnosis(start: Callable[[int], SeparateTasks], name: str) -> None:
    hang = HANGS[name]
    with start(hang.workers) as tasks:
        ends = hang.fault(tasks)
        addresses = dict(tasks.addresses)
        code = ends.finish()
        took = time.monotonic() - tasks.faulted
    assert code == hang.code, ends.text
    assert len(ends.errors) == 1, ends.text
    [error] = ends.errors
    for part in hang.message:
        for task, address in addresses.items():
            part = part.replace(f"{{{task}}}", address)
        assert part in error, ends.text
    assert took < hang.limit + LATE_SECONDS, f"{took:.1f} s: {error}"


@pytest.mark.slow
def test_a_stopped_worker_is_as_good_as_a_dead_one(
    start: Callable[[int], SeparateTasks],
) -> None:
    """Its lease goes to the other worker."""
    with start(2) as tasks:
        tasks.serve("ps 0")
        tasks.serve("worker 0")
        stopped = tasks.serve("worker 1")
        chief = training(tasks, f"--train.epochs={EPOCHS}")
        tasks.stop(stopped)
        chief.see(r"worker 1 at .* is lost: it did not answer for 1\d s")
        assert chief.finish() == 0, chief.text
    report = read_report(tasks.job_dir)
    assert report["examples"]["trained"] == EPOCHS * RECORDS
    assert report["examples"]["skipped"] == 0
    [failure] = report["failures"]
    assert (failure["task"], failure["what"]) == ("worker 1", SILENCE)
    # Who had it is only told where the chief looks between the loss and the other's first batch: a
    # save may be under way then, in which TensorFlow waits for every worker that is not lost yet.
    held = r"worker 1 at .* held epoch \d, shard .*: it continues after \d+ records"
    begun_again = r"epoch \d, shard .*: begun again 1 times, done by worker 0"
    assert re.search(f"{held}|{begun_again}", chief.text), chief.text
    assert re.search(r"worker 1 at .* may be lost", chief.text)
