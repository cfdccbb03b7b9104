"""Faults after which tasks wait: each starts tasks and returns the one that must end."""

import json
import os
from collections.abc import Callable

from black_hole import BlackHole
from cluster_process import Program
from separate_tasks import SeparateTasks

from tests import peers
from tests.peers import Peer

CONNECT, STALL, SILENT, PS_WAIT, CHIEF = 4, 30, 10, 4, 4
CONNECT_LIMIT = f"--connect_seconds={CONNECT}"
STALL_LIMIT = f"--stall_seconds={STALL}"
PS_LIMIT = f"--task_wait_seconds={PS_WAIT}"


def connecting(tasks: SeparateTasks, **sees: str) -> Program:
    """A chief that waits for its tasks."""
    named = {task.replace("_", " "): address for task, address in sees.items()}
    chief = tasks.start("chief 0", CONNECT_LIMIT, sees=named)
    chief.see(r"waiting for \d workers and \d ps")
    tasks.fault()
    return chief


def training(tasks: SeparateTasks, *flags: str, sees: dict[str, str] | None = None) -> Program:
    """A chief in the middle of its second epoch, with all the other tasks there."""
    own = (STALL_LIMIT, PS_LIMIT, "--train.epochs=20", "--progress_seconds=0.5")
    chief = tasks.start("chief 0", *own, *flags, sees=sees)
    chief.see(r"epoch 1 of \d+ trained")
    chief.see(r" epoch 2/\d+: [1-9][\d,]* of ", len(chief.lines))
    return chief


def never_started(missing: str) -> Callable[[SeparateTasks], Program]:
    def fault(tasks: SeparateTasks) -> Program:
        for task in tasks.addresses:
            if task not in ("chief 0", missing):
                tasks.serve(task)
        return connecting(tasks)

    return fault


def elsewhere(**sees: str) -> Callable[[SeparateTasks], Program]:
    """The chief has another address than the others have."""

    def fault(tasks: SeparateTasks) -> Program:
        tasks.serve("ps 0")
        tasks.serve("worker 0")
        return connecting(tasks, **sees)

    return fault


def other_program(task: str, act: Callable) -> Callable[[SeparateTasks], Program]:
    def fault(tasks: SeparateTasks) -> Program:
        peer = tasks.enter(Peer(act, tasks.addresses[task]))
        assert isinstance(peer, Peer)
        for other in tasks.addresses:
            if other not in ("chief 0", task):
                tasks.serve(other)
        return connecting(tasks)

    return fault


def stopped_before(task: str) -> Callable[[SeparateTasks], Program]:
    def fault(tasks: SeparateTasks) -> Program:
        servers = {name: tasks.serve(name) for name in ("ps 0", "worker 0")}
        tasks.stop(servers[task])
        return connecting(tasks)

    return fault


def swapped(tasks: SeparateTasks) -> Program:
    for task in ("ps 0", "worker 0", "worker 1"):
        tasks.serve(task)
    first, second = tasks.addresses["worker 0"], tasks.addresses["worker 1"]
    return connecting(tasks, worker_0=second, worker_1=first)


def larger_cluster(tasks: SeparateTasks) -> Program:
    tasks.serve("ps 0")
    tasks.serve("worker 0", sees={"worker 1": "127.0.0.1:20001"})
    return connecting(tasks)


def other_version(tasks: SeparateTasks) -> Program:
    tasks.serve("ps 0")
    tasks.serve("worker 0")
    path = tasks.job_dir / "tasks" / "worker-0.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tensorflow": "2.9.1"}))
    return connecting(tasks)


def stopped_in_training(task: str) -> Callable[[SeparateTasks], Program]:
    def fault(tasks: SeparateTasks) -> Program:
        servers = {name: tasks.serve(name) for name in ("ps 0", "worker 0")}
        chief = training(tasks)
        tasks.stop(servers[task])
        return chief

    return fault


def black_hole_in_training(task: str) -> Callable[[SeparateTasks], Program]:
    def fault(tasks: SeparateTasks) -> Program:
        hole = tasks.enter(BlackHole(tasks.addresses[task]))
        assert isinstance(hole, BlackHole)
        sees = {task: hole.address}
        for name in ("ps 0", "worker 0"):
            tasks.serve(name, sees={} if name == task else sees)
        chief = training(tasks, sees=sees)
        hole.swallow()
        tasks.fault()
        tasks.addresses[task] = hole.address
        return chief

    return fault


def stopped_in_evaluation(tasks: SeparateTasks) -> Program:
    tasks.serve("ps 0")
    worker = tasks.serve("worker 0")
    eval_data = f"--data.eval={tasks.job_dir.parent / 'data'}"
    chief = tasks.start("chief 0", STALL_LIMIT, "--train.epochs=1", eval_data)
    chief.see("epoch 1 of 1 trained")
    tasks.stop(worker)
    return chief


def hanging_storage(tasks: SeparateTasks) -> Program:
    """Shards become pipes into which nobody writes."""
    tasks.serve("ps 0")
    tasks.serve("worker 0")
    chief = training(tasks)
    for shard in (tasks.job_dir.parent / "data").glob("*.tfrecord"):
        shard.unlink()
        os.mkfifo(shard)
    tasks.fault()
    return chief


def no_chief(task: str) -> Callable[[SeparateTasks], Program]:
    def fault(tasks: SeparateTasks) -> Program:
        server = tasks.serve(task, f"--chief_wait_seconds={CHIEF}")
        tasks.fault()
        return server

    return fault


def other_program_for_chief(tasks: SeparateTasks) -> Program:
    tasks.enter(Peer(peers.speak_http1, tasks.addresses["chief 0"]))
    return no_chief("worker 0")(tasks)


def stopped_chief(task: str) -> Callable[[SeparateTasks], Program]:
    def fault(tasks: SeparateTasks) -> Program:
        flag = f"--chief_lost_seconds={CHIEF}"
        servers = {name: tasks.serve(name, flag) for name in ("ps 0", "worker 0")}
        tasks.stop(training(tasks))
        return servers[task]

    return fault
