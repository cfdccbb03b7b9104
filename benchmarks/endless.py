"""A stream of messages that is trained and served meanwhile, for an hour: delays, what it holds.

    python -m benchmarks.endless --minutes=60 --output=runs/endless

Kafka's test broker, `trainer.collect`, a job that follows its datasets and exports versions and
deltas, and a client that follows the model. Every few seconds clicks on an item that nobody has
seen are sent: the delay is until the client's row of it changes. `--rate` must be one that the
machine bears, or the delays are those of a queue. With `--fault_seconds` tasks are killed and
stopped meanwhile, so that a day's checkpoints, versions and faults fit into an hour:

    python -m benchmarks.endless --minutes=48 --fault_seconds=120 --export_seconds=120 \
        --rate=1000 --cluster=--workers=2,--ps=2,--max_restarts=30 --output=runs/day
"""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import psutil
from absl import app, flags

import tfps
from benchmarks import drift, systems
from tests.kafka_broker import Broker
from tfps.export.loaded_model import ExportedModel
from tfps.export.versions import newest_version
from tfps.job_dir import JobDir, report
from tfps.monitoring import recorder
from tfps.monitoring.events import CheckpointSaved

_FLAGS = flags.FLAGS
flags.DEFINE_string("output", "runs/endless", "Directory of stream and job; its content goes.")
flags.DEFINE_float("minutes", 60.0, "How long messages come.", lower_bound=0.5)
flags.DEFINE_integer("rate", 4000, "Messages a second.", lower_bound=100)
flags.DEFINE_integer("probe_seconds", 3, "Between two unseen items.", lower_bound=1)
flags.DEFINE_float("checkpoint_seconds", 1.0, "Between two checkpoints, and deltas.")
flags.DEFINE_float("export_seconds", 600.0, "Between two versions.")
flags.DEFINE_integer("fault_seconds", 0, "Between two faults; 0: none.", lower_bound=0)
flags.DEFINE_list("cluster", ["--workers=2", "--ps=1"], "Arguments of cloud.local.")
_CLICKS = 20  # on an unseen item
_WATCH_SECONDS = 5  # between two looks at what programs hold
_PARTS = 6  # of the time; what tasks held in each is printed
# In turn, the chief once, and the first worker and ps never: what they hold must not grow.
_FAULTS = ("kill:worker:1", "kill:ps:1", "stop:worker:1", "kill:ps:1", "kill:worker:1", "stop:ps:1")
_STOP_SECONDS = 10


class Probes:
    """Items that nobody has seen, and when the served model knew them."""

    def __init__(self, job_dir: JobDir):
        self._job_dir = job_dir
        self._sent: dict[int, float] = {}
        self.delays: list[tuple[int, float]] = []  # the item, and seconds
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def waiting(self) -> int:
        return len(self._sent)

    def send(self, broker: Broker, item: int) -> None:
        """Clicks on an item, which are there afterwards."""
        self._sent[item] = time.monotonic()
        broker.send(0, [_message(0, item, 1.0)] * _CLICKS)

    def _watch(self) -> None:
        while not newest_version(self._job_dir.export):
            time.sleep(0.1)
        model = tfps.load_model(str(self._job_dir), follow=True)
        while True:
            if sent := list(self._sent.items()):
                self._look(model, sent)
            time.sleep(0.05)

    def _look(self, model: ExportedModel, sent: list[tuple[int, float]]) -> None:
        [table] = [each for each in model.tables if each.name.startswith("of_items")]
        rows = model.rows(table, np.asarray([item for item, _ in sent]))[:, 0]
        now = time.monotonic()
        for (item, at), row in zip(sent, rows, strict=True):
            if row:
                self.delays.append((item, now - at))
                del self._sent[item]


@dataclasses.dataclass(frozen=True)
class Held:
    """What a process held at a time."""

    at: float
    mib: float
    files: int
    connections: int

    @classmethod
    def by(cls, process: psutil.Process) -> "Held":
        with process.oneshot():
            mib, files = process.memory_info().rss / 2**20, process.num_fds()
        connections = process.net_connections("tcp")
        established = sum(each.status == psutil.CONN_ESTABLISHED for each in connections)
        return cls(time.monotonic(), mib, files, established)


class Watch:
    """What the programs hold while they run."""

    def __init__(self, job_dir: JobDir, **programs: int):
        self._job_dir, self._programs = job_dir, programs
        self.held: dict[str, list[Held]] = {}
        self.job_files: list[int] = []

    def look(self) -> None:
        for program, process in self._programs.items():
            with contextlib.suppress(psutil.NoSuchProcess):  # one that was killed meanwhile
                for task, found in systems.tasks(process, program).items():
                    self.held.setdefault(task, []).append(Held.by(psutil.Process(found)))
        # What is deleted meanwhile is passed over.
        self.job_files.append(sum(len(found) for _, _, found in os.walk(self._job_dir)))


def _message(user: int, item: int, clicked: float) -> str:
    return f'{{"user": {user}, "item": {item}, "clicked": {clicked}}}'


def _stream(broker: Broker, probes: Probes) -> Iterator[int]:
    """Sends the messages of each second when it comes; how many that were."""
    began, item = time.monotonic(), drift.ITEMS
    for second in range(round(60 * _FLAGS.minutes)):
        columns, _ = drift.clicks(second, _FLAGS.rate)
        records = zip(*(columns[name].tolist() for name in columns), strict=True)
        broker.send(second % 2, [_message(*record) for record in records])
        is_probed = second % _FLAGS.probe_seconds == 0 and item < drift.ITEMS + drift.UNSEEN
        if is_probed:
            probes.send(broker, item)
            item += 1
        yield _FLAGS.rate + is_probed * _CLICKS
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))


def _print_delays(probes: Probes) -> None:
    items = np.asarray([item for item, _ in probes.delays])
    delays = np.asarray([delay for _, delay in probes.delays])
    # Those that were sent before the first version wait for the programs' start.
    is_warm = items >= drift.ITEMS + 60 // _FLAGS.probe_seconds
    median, most, nearly_all = np.quantile(delays[is_warm], (0.5, 0.9, 0.99))
    sys.stdout.write(
        f"{is_warm.sum()} items, from the second minute on: known after {median:.1f} s in the "
        f"median, 90 % within {most:.1f} s, 99 % within {nearly_all:.1f} s, all within "
        f"{delays[is_warm].max():.1f} s; never known: {probes.waiting}\n"
    )


def _print_pauses(job_dir: JobDir) -> None:
    saves = [each.saves for each in recorder.read(job_dir) if isinstance(each, CheckpointSaved)]
    pauses = 1000 * np.diff([0.0, *(each.stopped_seconds for each in saves)])
    median, nearly_all = np.quantile(pauses, (0.5, 0.99))
    sys.stdout.write(
        f"{len(pauses)} checkpoints stopped the workers for {median:.0f} ms in the median, 99 % "
        f"for {nearly_all:.0f} ms at most, the longest for {pauses.max():.0f} ms\n"
    )


def _print_held(watch: Watch) -> None:
    at = [each.at for held in watch.held.values() for each in held]
    bounds = np.linspace(min(at), max(at), _PARTS + 1)[1:-1]
    for task, held in sorted(watch.held.items()):
        part = np.digitize([each.at for each in held], bounds)
        for what in ("mib", "files", "connections"):
            taken = np.asarray([getattr(each, what) for each in held])
            each = [np.median(taken[part == number]) for number in np.unique(part)]
            # From the second part on: a program grows until it has done everything once.
            change = max(each[1:], default=0) - min(each[1:], default=0)
            shown = " ".join(f"{median:5.0f}" for median in each)
            line = f"{task:>10} {what:<11} {shown}, within {change:.0f} from the second on"
            sys.stdout.write(f"{line}, {taken.max():.0f} at most\n")
    files = [round(np.median(each)) for each in np.array_split(watch.job_files, _PARTS)]
    sys.stdout.write(f"files of the job's directory: {files}\n")


def _chaos() -> list[str]:
    """The launcher's flag for the faults, none in the last two minutes."""
    if not (every := _FLAGS.fault_seconds):
        return []
    moments = range(every, round(60 * _FLAGS.minutes) - 120, every)
    kinds = [_FAULTS[number % len(_FAULTS)] for number in range(len(moments))]
    if not kinds:
        return []
    kinds[len(kinds) // 4] = "kill:chief"
    held = {"stop": f"+{_STOP_SECONDS}s"}
    pairs = zip(kinds, moments, strict=True)
    faults = (f"{kind}@{at}s{held.get(kind.split(':')[0], '')}" for kind, at in pairs)
    return [f"--chaos={','.join(faults)}"]


def _started(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", module, *arguments])


def main(_: list[str]) -> None:
    output = pathlib.Path(_FLAGS.output)
    shutil.rmtree(output, ignore_errors=True)
    stream, job_dir = output / "stream", JobDir(output / "job")
    stream.mkdir(parents=True)
    with Broker("clicks") as broker:
        probes = Probes(job_dir)
        collector = _started(
            *("trainer.collect", "--config=benchmarks/drift.py", f"--input={broker.url}"),
            *(f"--output={stream}", "--seconds=1", "--shards=2"),
        )
        job = _started(
            *("cloud.local", *_FLAGS.cluster, *_chaos(), "--", "--config=benchmarks/drift.py"),
            *(f"--job_dir={job_dir}", f"--data.train={stream}/{{epoch:06}}"),
            *("--data.follow_seconds=60", "--train.export_deltas=true"),
            f"--train.checkpoint_seconds={_FLAGS.checkpoint_seconds}",
            f"--train.export_seconds={_FLAGS.export_seconds}",
        )
        watch, sent = Watch(job_dir, collector=collector.pid, launcher=job.pid), 0
        for second, count in enumerate(_stream(broker, probes)):
            sent += count
            if second % _WATCH_SECONDS == 0:
                watch.look()
        collector.send_signal(signal.SIGTERM)
        ended = collector.wait(), job.wait()
    found = report.load(job_dir)
    if not found:
        sys.exit(f"{sent:,} messages sent; the job has no report; exit codes {ended}")
    sys.stdout.write(
        f"{sent:,} messages sent, {found.examples.trained:,} trained, of them "
        f"{found.examples.repeated:,} at most more than once; {len(found.failures)} failures, "
        f"{len(found.recoveries)} recoveries; exit codes {ended}\n"
    )
    _print_delays(probes)
    _print_pauses(job_dir)
    _print_held(watch)


if __name__ == "__main__":
    app.run(main)
