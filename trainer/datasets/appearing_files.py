"""Rows of files that appear in a directory, each file read once, by name."""

import logging
import posixpath
import time
from collections.abc import Iterable, Mapping
from typing import Any

from tfps.data.dataset_names import ListedNames, poll_seconds
from tfps.errors import UserError
from trainer.datasets.row_encoding import RowFile
from trainer.datasets.row_layout import Block, RowLayout

_FILE = "file"
_log = logging.getLogger(__name__)


class AppearingFiles:
    """A source of `trainer.collect`: what comes at once is a whole file."""

    def __init__(self, directory: str, layout: RowLayout):
        self._directory = directory
        self._layout = layout
        self._names = ListedNames(directory, is_finished=lambda path: True)
        self._last = ""
        self._poll_seconds = poll_seconds(directory)

    @property
    def place(self) -> Mapping[str, Any]:
        return {_FILE: self._last}

    def resume(self, place: Mapping[str, Any]) -> None:
        last = place.get(_FILE, "")
        if place and not last:
            raise UserError(
                f"--input={self._directory}: the newest dataset in --output was collected from "
                f"{dict(place)}; name that input, or another --output"
            )
        self._last = last

    def read(self, rows: int) -> Iterable[Block] | None:
        """The rows of the next file; None if none has come after a while."""
        name = self._names.after(self._last, _log.warning)
        if name is None:
            time.sleep(self._poll_seconds)
            return None
        self._last = name
        return RowFile.of(posixpath.join(self._directory, name), self._layout).blocks()

    def close(self) -> None:
        """No file is open between two reads."""
