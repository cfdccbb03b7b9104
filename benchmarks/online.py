"""A job that follows clicks whose reasons drift: how good its model is, and its versions.

    python -m benchmarks.online --output=runs/online

A dataset appears every few seconds. Afterwards two tables: what the model predicted of records
before it learnt them, compared with the same updates in order, with a filter that is given what it
would have to guess, and with the truth; and what a served model predicted of each dataset when it
appeared, with deltas and with versions alone.
"""

import pathlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping

import numpy as np
from absl import app, flags
from sklearn.metrics import roc_auc_score

import tfps
from benchmarks import drift
from tfps.export.loaded_model import ExportedModel
from tfps.export.versions import newest_version
from tfps.job_dir import JobDir
from tfps.monitoring import recorder
from tfps.monitoring.events import Sampled

_FLAGS = flags.FLAGS
flags.DEFINE_string("output", "runs/online", "Directory of stream and job; its content goes.")
flags.DEFINE_integer("datasets", 60, "How many appear.", lower_bound=2)
flags.DEFINE_integer("records", 20_000, "Of each dataset.", lower_bound=1000)
flags.DEFINE_float("seconds", 2.0, "Between two datasets.", lower_bound=0.0)
flags.DEFINE_float("export_seconds", 40.0, "Between two versions.", lower_bound=0.0)
flags.DEFINE_float("delta_seconds", 2.0, "Between two checkpoints, and deltas.", lower_bound=0.1)
flags.DEFINE_list("cluster", ["--workers=2", "--ps=1"], "Arguments of cloud.local.")


class Server:
    """A model that is followed, and asked of the clicks that come next."""

    def __init__(self, job_dir: pathlib.Path):
        self._job_dir = job_dir
        self._model: ExportedModel | None = None
        # By dataset: the version, and the AUC of the version with its newest delta.
        self.answered: dict[int, tuple[str, float]] = {}

    def ask(self, number: int, columns: Mapping[str, np.ndarray], clicked: np.ndarray) -> None:
        """Predicts a dataset's clicks if there is a version by now."""
        if self._model is None and newest_version(JobDir(self._job_dir).export):
            self._model = tfps.load_model(str(self._job_dir), follow=True)
        if self._model:
            version = self._model.directory
            self.answered[number] = version, _auc(self._model, columns, clicked)


def _auc(model: ExportedModel, columns: Mapping[str, np.ndarray], clicked: np.ndarray) -> float:
    [predicted] = model.predict(columns).values()
    return float(roc_auc_score(clicked, predicted.ravel()))


def _write(stream: pathlib.Path, server: Server) -> None:
    for number in range(_FLAGS.datasets):
        began = time.monotonic()
        columns, _ = drift.clicks(number, _FLAGS.records)
        clicked = columns.pop("clicked")
        server.ask(number, columns, clicked)
        tfps.write_dataset(
            str(stream / f"{number:06}"),
            columns,
            clicked,
            features=drift.FEATURES,
            label=drift.LABEL,
            shards=2,
        )
        time.sleep(max(0.0, began + _FLAGS.seconds - time.monotonic()))


def _judged(job_dir: pathlib.Path) -> Iterator[tuple[str, ...]]:
    """Of each sample: the datasets, the AUC of what was predicted, the others' of the same."""
    others, in_order, best = [], drift.InOrder(), drift.Filter()
    for number in range(_FLAGS.datasets):
        columns, truth = drift.clicks(number, _FLAGS.records)
        predicted = in_order.learn(columns), best.learn(columns), truth
        others.append([roc_auc_score(columns["clicked"], each) for each in predicted])
    before = 0
    for event in recorder.read(JobDir(job_dir)):
        if isinstance(event, Sampled) and "auc" in event.judged:
            first, last = before // _FLAGS.records, (event.examples - 1) // _FLAGS.records
            before, auc = event.examples, event.judged["auc"]
            compared = (f"{auc - each:+.4f}" for each in np.mean(others[first : last + 1], axis=0))
            yield f"{first}-{last}", f"{auc:.4f}", *compared


def _served(server: Server) -> Iterator[tuple[str, ...]]:
    """Of ten datasets each: what a server answered, and would have answered without deltas."""
    models: dict[str, ExportedModel] = {}
    in_order, rows = drift.InOrder(), []
    for number in range(_FLAGS.datasets):
        columns, _ = drift.clicks(number, _FLAGS.records)
        learnt = roc_auc_score(columns["clicked"], in_order.learn(columns))
        if number in server.answered:
            version, with_deltas = server.answered[number]
            if version not in models:
                models[version] = ExportedModel.load(version)
            alone = _auc(models[version], columns, columns["clicked"])
            rows.append((number, learnt, with_deltas, alone))
    for first in range(0, _FLAGS.datasets, 10):
        if some := [auc for number, *auc in rows if first <= number < first + 10]:
            at_once, with_deltas, versions = np.mean(some, axis=0)
            share = f"{(with_deltas - versions) / (at_once - versions):.0%}"
            aucs = (f"{auc:.4f}" for auc in (at_once, with_deltas, versions))
            yield f"{first}-{first + 9}", *aucs, share


def _print(*rows: tuple[str, ...]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
        sys.stdout.write(f"{line}\n")
    sys.stdout.write("\n")


def main(_: list[str]) -> None:
    output = pathlib.Path(_FLAGS.output)
    shutil.rmtree(output, ignore_errors=True)
    stream, job_dir = output / "stream", output / "job"
    stream.mkdir(parents=True)
    server = Server(job_dir)
    threading.Thread(target=_write, args=[stream, server], daemon=True).start()
    subprocess.run(
        [
            *(sys.executable, "-m", "cloud.local", *_FLAGS.cluster, "--"),
            *("--config=benchmarks/drift.py", f"--job_dir={job_dir}"),
            *(f"--data.train={stream}", "--data.follow_seconds=30"),
            f"--train.checkpoint_seconds={_FLAGS.delta_seconds}",
            f"--train.export_seconds={_FLAGS.export_seconds}",
            *("--train.export_deltas=true", "--train.keep_exports=1000"),
        ],
        check=True,
    )
    _print(
        ("datasets", "AUC before learning", "off one in order", "off a filter", "off the truth"),
        *_judged(job_dir),
    )
    _print(
        ("datasets", "learnt at once", "served with deltas", "with versions alone", "of the way"),
        *_served(server),
    )


if __name__ == "__main__":
    app.run(main)
