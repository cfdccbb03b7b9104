"""The curves of a run for TensorBoard, under the names that Keras's own callback gives them.

`train` and `validation` are the directories of `keras.callbacks.TensorBoard`, with its tags: those
that begin with `epoch_` by epoch, `batch_` and `evaluation_…_vs_iterations` by the number of
updates. What else tfps knows has tags that begin with `tfps/`. Beside them lies what was set for
the run, for TensorBoard to compare runs by.
"""

import functools
import posixpath
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

from tfps.data import tfrecord
from tfps.job_dir.report import FINISHED, WorkerShare
from tfps.job_dir.task_files import TaskUsage
from tfps.job_dir.task_name import TaskName
from tfps.monitoring.events import (
    CheckpointSaved,
    EpochTrained,
    Evaluated,
    Histogram,
    ParametersMeasured,
    RunBegan,
    RunEnded,
    RunEvent,
    Sampled,
    TaskLost,
    TasksMeasured,
    TrainingBegan,
)
from tfps.storage.files import GrowingFile, writer_of

PLUGIN = "hparams"
START_TAG, END_TAG = "_hparams_/session_start_info", "_hparams_/session_end_info"
SUCCESS, FAILURE = 1, 2
_VERSION = 0
_PACKAGE = "tfps.hparams"
_Field = descriptor_pb2.FieldDescriptorProto
_FORMAT = "brain.Event:2"
_Event, _Summary = tf.compat.v1.Event, tf.compat.v1.Summary
_Metadata, _SessionLog = tf.compat.v1.SummaryMetadata, tf.compat.v1.SessionLog
_SCALARS, _HISTOGRAMS = "scalars", "histograms"  # names of TensorBoard's plugins
TRAIN, VALIDATION = "train", "validation"


def _declare() -> dict[str, Any]:
    """The classes of the messages, by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="tfps/hparams.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=["google/protobuf/struct.proto"],
    )
    start = file.message_type.add(name="SessionStartInfo")
    entry = start.nested_type.add(name="HparamsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL)
    _add(entry, "value", 2, ".google.protobuf.Value")
    _add(start, "hparams", 1, f".{_PACKAGE}.SessionStartInfo.HparamsEntry", repeated=True)
    _add(start, "start_time_secs", 5, _Field.TYPE_DOUBLE)
    end = file.message_type.add(name="SessionEndInfo")
    _add(end, "status", 1, _Field.TYPE_INT32)  # on the wire an enum is one
    _add(end, "end_time_secs", 2, _Field.TYPE_DOUBLE)
    data = file.message_type.add(name="HParamsPluginData")
    _add(data, "version", 1, _Field.TYPE_INT32)
    _add(data, "session_start_info", 3, f".{_PACKAGE}.SessionStartInfo")
    _add(data, "session_end_info", 4, f".{_PACKAGE}.SessionEndInfo")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}")
        )
        for message in file.message_type
    }


def _add(message: Any, name: str, number: int, kind: "int | str", repeated: bool = False) -> None:
    label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
    if isinstance(kind, str):
        of = {"type": _Field.TYPE_MESSAGE, "type_name": kind}
        message.field.add(name=name, number=number, label=label, **of)
    else:
        message.field.add(name=name, number=number, label=label, type=kind)


_MESSAGES = _declare()


def session_start(settings: Mapping[str, str], at: float) -> bytes:
    """What the plugin reads of a run that begins; numbers and truth values are shown as such."""
    data = _MESSAGES["HParamsPluginData"](version=_VERSION)
    data.session_start_info.start_time_secs = at
    for name, text in settings.items():
        value = data.session_start_info.hparams[name]
        parsed = _parsed(text)
        if isinstance(parsed, bool):
            value.bool_value = parsed
        elif isinstance(parsed, float):
            value.number_value = parsed
        else:
            value.string_value = parsed
    return bytes(data.SerializeToString(deterministic=True))


def session_end(is_success: bool, at: float) -> bytes:
    data = _MESSAGES["HParamsPluginData"](version=_VERSION)
    data.session_end_info.status = SUCCESS if is_success else FAILURE
    data.session_end_info.end_time_secs = at
    return bytes(data.SerializeToString(deterministic=True))


def _parsed(text: str) -> bool | float | str:
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text)
    except ValueError:
        return text


class EventFile:
    """What one program writes into a directory of event files; times are seconds since 1970."""

    def __init__(self, directory: str, began: float):
        writer = writer_of(began)  # files of programs that began later are read later
        self._file = GrowingFile(
            directory,
            lambda number: f"events.out.tfevents.{writer}.{number:06d}.v2",
            _framed(_Event(wall_time=began, file_version=_FORMAT)),
        )

    def begin(self, step: int, at: float) -> None:
        """Says that what was written before from a step on is given up: TensorBoard drops it."""
        log = _SessionLog(status=_SessionLog.START)
        self._file.append(_framed(_Event(wall_time=at, step=step, session_log=log)))

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        points = {tag: tf.make_tensor_proto(x, tf.float32) for tag, x in values.items()}
        data = _Metadata.PluginData(plugin_name=_SCALARS)
        self._add(points, _Metadata(plugin_data=data, data_class="DATA_CLASS_SCALAR"), at, step)

    def histograms(self, values: Mapping[str, Histogram], step: int, at: float) -> None:
        bins = {  # left edge, right edge and count of each
            tag: tf.make_tensor_proto(
                list(zip(each.edges[:-1], each.edges[1:], each.counts, strict=True)), tf.float64
            )
            for tag, each in values.items()
        }
        data = _Metadata.PluginData(plugin_name=_HISTOGRAMS)
        self._add(bins, _Metadata(plugin_data=data, data_class="DATA_CLASS_TENSOR"), at, step)

    def note(self, tag: str, plugin: str, content: bytes, at: float) -> None:
        """Adds what a plugin of TensorBoard keeps with a tag, and no values."""
        data = _Metadata.PluginData(plugin_name=plugin, content=content)
        nothing = tf.make_tensor_proto(0.0, tf.float32)
        self._add({tag: nothing}, _Metadata(plugin_data=data), at)

    def flush(self) -> None:
        self._file.flush()

    def _add(self, tensors: Mapping[str, Any], metadata: Any, at: float, step: int = 0) -> None:
        """Adds an event with tensors by tag."""
        summary = _Summary(
            value=[
                _Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
                for tag, tensor in tensors.items()
            ]
        )
        self._file.append(_framed(_Event(wall_time=at, step=step, summary=summary)))


def _framed(event: tf.compat.v1.Event) -> bytes:
    return tfrecord.frame(event.SerializeToString())


class TensorBoardLog:
    """Writes what happens in a run as TensorBoard's events.

    Where a run goes back to a checkpoint, TensorBoard drops what was drawn behind it; the curve
    `tfps/went_back_examples` says how many records are trained again. What goes by epochs is
    written once the epoch is in a checkpoint.
    """

    name = "the curves for TensorBoard"

    def __init__(self, directory: str, began: float):
        self._run = EventFile(directory, began)
        self._train = EventFile(posixpath.join(directory, TRAIN), began)
        self._validation = EventFile(posixpath.join(directory, VALIDATION), began)
        self._last: Sampled | None = None
        self._lost: dict[str, int] = {}  # by job
        self._steps: dict[str, int] = {}  # of the last point of each curve
        self._usages: dict[str, TaskUsage] = {}  # by name of the task

    @functools.singledispatchmethod
    def tell(self, event: RunEvent) -> None:
        """Adds what happened to the curves; not all that happens is in one."""

    @tell.register
    def _(self, event: RunBegan) -> None:
        settings = dict(override.split("=", 1) for override in event.overrides)
        start = session_start(settings, event.at)
        self._run.note(START_TAG, PLUGIN, start, event.at)

    @tell.register
    def _(self, event: RunEnded) -> None:
        end = session_end(event.status == FINISHED, event.at)
        self._run.note(END_TAG, PLUGIN, end, event.at)

    @tell.register
    def _(self, event: TrainingBegan) -> None:
        for file in (self._train, self._validation):
            file.begin(event.steps + 1, event.at)
        self._steps = {tag: min(step, event.steps) for tag, step in self._steps.items()}
        if self._last and self._last.examples > event.examples:
            again = self._last.examples - event.examples
            values = {"tfps/went_back_examples": float(again)}
            self._draw(values, event.steps + 1, event.at)
        self._last = None

    @tell.register
    def _(self, event: Sampled) -> None:
        values = {
            "tfps/examples_per_second": event.examples_per_second,
            "tfps/repeated_records": float(event.repeated),
            "tfps/bad_records": float(event.bad),
        }
        if event.loss is not None:
            values["batch_loss"] = event.loss
        values |= {f"batch_{name}": value for name, value in event.judged.items()}
        before = self._last
        if before and before.steps == event.steps:
            return  # there is a point
        if before:
            seconds = max(event.at - before.at, 1e-3)
            values["batch_steps_per_second"] = (event.steps - before.steps) / seconds
            values |= _idle(before.workers, event.workers)
        values |= {f"tfps/lost_{job}": float(count) for job, count in self._lost.items()}
        self._draw(values, event.steps, event.at)
        self._last = event

    @tell.register
    def _(self, event: TasksMeasured) -> None:
        largest: dict[str, float] = {}
        for name, usage in event.tasks.items():
            tag = f"tfps/memory_bytes_{TaskName.parse(name).job}"
            largest[tag] = max(largest.get(tag, 0.0), float(usage.memory_bytes))
        largest |= self._wire(event.tasks)
        if self._last:
            self._draw(largest, self._last.steps, event.at)

    def _wire(self, usages: Mapping[str, TaskUsage]) -> dict[str, float]:
        """What all ps together have sent and received per second, since their reports before."""
        rates: dict[str, float] = {}
        for name, now in usages.items():
            before, self._usages[name] = self._usages.get(name), now
            if TaskName.parse(name).job != "ps" or not before or now.at <= before.at:
                continue
            for what in ("sent", "received"):
                more = getattr(now, f"{what}_bytes") - getattr(before, f"{what}_bytes")
                if more >= 0:  # else it has begun again
                    tag = f"tfps/ps_{what}_bytes_per_second"
                    rates[tag] = rates.get(tag, 0.0) + more / (now.at - before.at)
        return rates

    @tell.register
    def _(self, event: ParametersMeasured) -> None:
        spreads = {f"{name}/histogram": each for name, each in event.parameters.items()}
        spreads |= {f"{name}/gradient/histogram": each for name, each in event.gradients.items()}
        norms = {f"tfps/norm/{name}": each.norm for name, each in event.parameters.items()}
        norms |= {f"tfps/gradient_norm/{name}": x.norm for name, x in event.gradients.items()}
        self._train.histograms(spreads, event.steps, event.at)
        self._draw(norms, event.steps, event.at)

    @tell.register
    def _(self, event: CheckpointSaved) -> None:
        saves = event.saves
        values = {
            "tfps/checkpoint_write_seconds": saves.write_seconds,
            "tfps/checkpoint_stopped_seconds": saves.stopped_seconds,
            "tfps/checkpoint_bytes": float(saves.bytes),
        }
        if event.staleness.histogram:  # else nothing was pushed
            values["tfps/staleness"] = event.staleness.mean
        if saves.touched_by_table:
            values["tfps/touched_rows"] = float(saves.touched_rows)
        self._draw(values, event.steps, event.at)

    @tell.register
    def _(self, event: EpochTrained) -> None:
        values = {"epoch_loss": event.loss}
        if event.learning_rate is not None:
            values["epoch_learning_rate"] = event.learning_rate
        if event.steps_per_second is not None:
            values["epoch_steps_per_second"] = event.steps_per_second
        self._train.scalars(values, event.epoch, event.at)

    @tell.register
    def _(self, event: Evaluated) -> None:
        by_steps = {f"evaluation_{name}_vs_iterations": x for name, x in event.metrics.items()}
        self._validation.scalars(by_steps, event.steps, event.at)
        if event.has_ended_epoch:
            by_epoch = {f"epoch_{name}": x for name, x in event.metrics.items()}
            self._validation.scalars(by_epoch, event.epoch - 1, event.at)

    @tell.register
    def _(self, event: TaskLost) -> None:
        job = TaskName.parse(event.task).job
        self._lost[job] = self._lost.get(job, 0) + 1

    def flush(self) -> None:
        self._run.flush()
        self._train.flush()
        self._validation.flush()

    def _draw(self, values: Mapping[str, float], steps: int, at: float) -> None:
        """Adds points to curves of the training; a curve that has one there stays as it is."""
        new = {tag: value for tag, value in values.items() if self._steps.get(tag, -1) < steps}
        self._steps |= dict.fromkeys(new, steps)
        if new:
            self._train.scalars(new, steps, at)


def _idle(before: tuple[WorkerShare, ...], now: tuple[WorkerShare, ...]) -> dict[str, float]:
    """The part of their time that workers waited for leases since a sample."""
    if len(before) != len(now):
        return {}
    new = WorkerShare.together(x.since(y) for x, y in zip(now, before, strict=True))
    return {} if new.idle_share is None else {"tfps/idle_share": new.idle_share}
