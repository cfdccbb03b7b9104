"""How a model's preprocessing layers number words and values: to which of them rows belong."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import keras

from tfps.model import keras_patches

_LOOKUPS = keras.layers.StringLookup, keras.layers.IntegerLookup
_BY_SETTINGS = keras.layers.Hashing, keras.layers.HashedCrossing, keras.layers.Discretization
_OF_ANY_LAYER = "name", "dtype", "trainable"


@dataclasses.dataclass(frozen=True)
class Numbering:
    """What one layer numbers, and how.

    Attributes:
        words: In the order of their numbers, those for what is masked or unknown among them; none
            of a layer that computes numbers.
    """

    words: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def summary(self) -> dict[str, Any]:
        """What a checkpoint keeps, as JSON-ready data."""
        words = {"words": len(self.words), "sha256": _digest(self.words)} if self.words else {}
        return {**words, "settings": dict(self.settings)}

    def difference(self, theirs: Mapping[str, Any]) -> str:
        """What other things the numbers meant that a checkpoint keeps, in words; empty for none."""
        count = theirs.get("words", 0)
        if count and _digest(self.words[:count]) != theirs["sha256"]:
            had = f"{count:,} words that it had, [UNK] included"
            return f"does not begin with the {had}, in their order"
        if theirs["settings"] != self.summary["settings"]:
            was, now = (json.dumps(each) for each in (theirs["settings"], self.settings))
            return f"was made with {was}, is with {now}"
        return ""


def numberings_of(model: keras.Model) -> dict[str, Numbering]:
    """How the layers of a model number things, by the layers' paths."""
    found = {}
    for layer in keras_patches.layers_of(model):
        path = layer.path or layer.name  # it has no path before it is built
        if isinstance(layer, _LOOKUPS):
            found[path] = Numbering(words=tuple(map(str, layer.get_vocabulary())))
        elif isinstance(layer, _BY_SETTINGS):
            config = json.loads(json.dumps(layer.get_config(), default=str))
            kept = {name: value for name, value in config.items() if name not in _OF_ANY_LAYER}
            found[path] = Numbering(settings=kept)
    return found


def renumbered(theirs: Mapping[str, Mapping[str, Any]], ours: Mapping[str, Numbering]) -> list[str]:
    """The layers of both that number things otherwise, in words."""
    both = {path: each.difference(theirs[path]) for path, each in ours.items() if path in theirs}
    return [f"layer {path!r} {said}" for path, said in both.items() if said]


def _digest(words: tuple[str, ...]) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()
