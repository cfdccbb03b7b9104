"""TensorBoard's event files, written without TensorBoard.

An event file is a TFRecord file of `Event` messages, of which the first names the format.
TensorBoard reads the event files of a directory as one, in the order of their names.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfps.data import tfrecord
from tfps.monitoring.events import Histogram
from tfps.storage.files import GrowingFile, writer_of

_FORMAT = "brain.Event:2"
_Event, _Summary = tf.compat.v1.Event, tf.compat.v1.Summary
_Metadata, _SessionLog = tf.compat.v1.SummaryMetadata, tf.compat.v1.SessionLog
_SCALARS, _HISTOGRAMS = "scalars", "histograms"  # names of TensorBoard's plugins


class EventFile:
    """What one program writes into a directory of event files."""

    def __init__(self, directory: str, began: float):
        """Writes nothing yet.

        Args:
            began: When the program began, seconds since 1970: later ones' files are read later.
        """
        writer = writer_of(began)
        self._file = GrowingFile(
            directory,
            lambda number: f"events.out.tfevents.{writer}.{number:06d}.v2",
            _framed(_Event(wall_time=began, file_version=_FORMAT)),
        )

    def begin(self, step: int, at: float) -> None:
        """Says that what was written before from a step on is given up: TensorBoard drops it.

        Args:
            at: When, seconds since 1970.
        """
        log = _SessionLog(status=_SessionLog.START)
        self._file.append(_framed(_Event(wall_time=at, step=step, session_log=log)))

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        """Adds a point to some curves.

        Args:
            at: When, seconds since 1970.
        """
        points = {tag: tf.make_tensor_proto(x, tf.float32) for tag, x in values.items()}
        self._add(points, _SCALARS, "DATA_CLASS_SCALAR", step, at)

    def histograms(self, values: Mapping[str, Histogram], step: int, at: float) -> None:
        """Adds how some values are spread.

        Args:
            at: When, seconds since 1970.
        """
        bins = {  # left edge, right edge and count of each
            tag: tf.make_tensor_proto(
                list(zip(each.edges[:-1], each.edges[1:], each.counts, strict=True)), tf.float64
            )
            for tag, each in values.items()
        }
        self._add(bins, _HISTOGRAMS, "DATA_CLASS_TENSOR", step, at)

    def note(self, tag: str, plugin: str, content: bytes, at: float) -> None:
        """Adds what a plugin of TensorBoard keeps with a tag, and no values.

        Args:
            at: When, seconds since 1970.
        """
        data = _Metadata.PluginData(plugin_name=plugin, content=content)
        nothing = tf.make_tensor_proto(0.0, tf.float32)
        value = _Summary.Value(tag=tag, tensor=nothing, metadata=_Metadata(plugin_data=data))
        self._file.append(_framed(_Event(wall_time=at, summary=_Summary(value=[value]))))

    def flush(self) -> None:
        """Brings what was added to where TensorBoard finds it."""
        self._file.flush()

    def _add(
        self, tensors: Mapping[str, Any], plugin: str, data_class: str, step: int, at: float
    ) -> None:
        """Adds an event with tensors by tag, as a plugin of TensorBoard reads them."""
        data = _Metadata.PluginData(plugin_name=plugin)
        metadata = _Metadata(plugin_data=data, data_class=data_class)
        summary = _Summary(
            value=[
                _Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
                for tag, tensor in tensors.items()
            ]
        )
        self._file.append(_framed(_Event(wall_time=at, step=step, summary=summary)))


def _framed(event: tf.compat.v1.Event) -> bytes:
    return tfrecord.frame(event.SerializeToString())
