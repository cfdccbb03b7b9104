"""Where a user's own code fails, in one line: the layer, the line of code and the reason."""

import linecache
import os
import sys
import traceback
from collections.abc import Iterator
from types import FrameType

import keras

from tfps.errors import reason_of
from tfps.model import keras_patches

# Packages whose frames say nothing of what the user wrote.
_LIBRARIES = {"keras", "tensorflow", "tfps", "trainer", "numpy", "optree", "absl", "google"}


def account(error: BaseException, model: keras.Model | None = None) -> str:
    """What failed: the innermost layer of a model, the user's line and the reason.

    Args:
        model: The model that was called; None before there is one.
    """
    return f"{place_of(error, model)}{reason_of(error)}"


def place_of(error: BaseException, model: keras.Model | None = None) -> str:
    """The layer and the user's line of `account`; empty if neither is known.

    Args:
        model: The model that was called; None before there is one.
    """
    layer = _failing_layer(model, error) if model else None
    where = f"in layer {layer.path!r}: " if layer else ""
    return where + _line_of(error)


def _line_of(error: BaseException) -> str:
    """The innermost line that is no library's, as `FILE:LINE, CODE: `; empty if there is none."""
    own = [(frame, line) for frame, line in _frames(error) if not _is_library(frame)]
    if not own:
        return ""
    frame, line = own[-1]
    path = frame.f_code.co_filename
    code = linecache.getline(path, line).strip()
    return f"{os.path.basename(path)}:{line}, `{code}`: " if code else ""


def _is_library(frame: FrameType) -> bool:
    top = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return top in _LIBRARIES or top in sys.stdlib_module_names


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    return traceback.walk_tb(error.__traceback__)


def _failing_layer(model: keras.Model, error: BaseException) -> keras.layers.Layer | None:
    """The innermost layer of a model in whose code an error was raised."""
    layers = {id(layer) for layer in keras_patches.layers_of(model)} - {id(model)}
    owners = [frame.f_locals.get("self") for frame, _ in _frames(error)]
    found = [each for each in owners if id(each) in layers]
    return found[-1] if found else None
