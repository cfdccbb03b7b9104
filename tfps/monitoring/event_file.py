"""TensorBoard's event files, written without TensorBoard.

An event file is a TFRecord file of `Event` messages, of which the first names the format.
TensorBoard reads the event files of a directory as one, in the order of their names.
"""

from collections.abc import Mapping

import tensorflow as tf

from tfps.data import tfrecord
from tfps.monitoring.events import Histogram
from tfps.storage.growing_file import GrowingFile, writer_of

_FORMAT = "brain.Event:2"
_Event, _Summary = tf.compat.v1.Event, tf.compat.v1.Summary
_Metadata, _SessionLog = tf.compat.v1.SummaryMetadata, tf.compat.v1.SessionLog
_SCALARS, _HISTOGRAMS = "scalars", "histograms"  # names of TensorBoard's plugins


class EventFile:
    """What one program writes into a directory of event files."""

    def __init__(self, directory: str, began: float):
        """Writes nothing yet.

        Args:
            directory: Where to, local or `gs://`.
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
            step: The first step that comes now.
            at: When, seconds since 1970.
        """
        log = _SessionLog(status=_SessionLog.START)
        self._file.append(_framed(_Event(wall_time=at, step=step, session_log=log)))

    def scalars(self, values: Mapping[str, float], step: int, at: float) -> None:
        """Adds a point to some curves.

        Args:
            values: By tag.
            step: Where the points lie on the horizontal axis.
            at: When, seconds since 1970.
        """
        plugin = _Metadata.PluginData(plugin_name=_SCALARS)
        metadata = _Metadata(plugin_data=plugin, data_class="DATA_CLASS_SCALAR")
        summary = _Summary(
            value=[
                _Summary.Value(
                    tag=tag, tensor=tf.make_tensor_proto(value, tf.float32), metadata=metadata
                )
                for tag, value in values.items()
            ]
        )
        self._file.append(_framed(_Event(wall_time=at, step=step, summary=summary)))

    def histograms(self, values: Mapping[str, Histogram], step: int, at: float) -> None:
        """Adds how some values are spread.

        Args:
            values: By tag.
            step: Where they lie on the horizontal axis.
            at: When, seconds since 1970.
        """
        plugin = _Metadata.PluginData(plugin_name=_HISTOGRAMS)
        metadata = _Metadata(plugin_data=plugin, data_class="DATA_CLASS_TENSOR")
        summary = _Summary(
            value=[
                _Summary.Value(
                    tag=tag,
                    tensor=tf.make_tensor_proto(
                        # Left edge, right edge and count of each bin.
                        list(zip(each.edges[:-1], each.edges[1:], each.counts, strict=True)),
                        tf.float64,
                    ),
                    metadata=metadata,
                )
                for tag, each in values.items()
            ]
        )
        self._file.append(_framed(_Event(wall_time=at, step=step, summary=summary)))

    def note(self, tag: str, plugin: str, content: bytes, at: float) -> None:
        """Adds what a plugin of TensorBoard keeps with a tag, and no values.

        Args:
            tag: The tag.
            plugin: Name of the plugin.
            content: As the plugin reads it.
            at: When, seconds since 1970.
        """
        data = _Metadata.PluginData(plugin_name=plugin, content=content)
        nothing = tf.make_tensor_proto(0.0, tf.float32)
        value = _Summary.Value(tag=tag, tensor=nothing, metadata=_Metadata(plugin_data=data))
        self._file.append(_framed(_Event(wall_time=at, summary=_Summary(value=[value]))))

    def flush(self) -> None:
        """Brings what was added to where TensorBoard finds it.

        Raises:
            StorageError: If it cannot be written; the next flush tries again.
        """
        self._file.flush()


def _framed(event: tf.compat.v1.Event) -> bytes:
    return tfrecord.frame(event.SerializeToString())
