"""Which layers of another model a run begins with, by their names."""

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tfps.checkpoint.table_growth import has_grown
from tfps.errors import UserError

_NAMED_LAYERS = 10


class _Parameter(NamedTuple):
    """A variable or a table of a model; of one without a vocabulary, the first size is None."""

    is_table: bool
    shape: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class LayerSelection:
    """What a run takes from a checkpoint of another model, by the paths of variables and tables."""

    variables: tuple[str, ...]
    tables: tuple[str, ...]
    new: tuple[str, ...]
    left: tuple[str, ...]

    @classmethod
    def of(
        cls,
        patterns: Sequence[str],
        theirs: Mapping[str, Any],
        ours: Mapping[str, Any],
        checkpoint: str,
    ) -> "LayerSelection":
        """Selects layers that both models have.

        Args:
            patterns: Each a layer's name, its path, or a pattern of one of them, such as `block_*`.
                What lies within a layer that matches is taken, too.
        """
        there, here = _parameters(theirs), _parameters(ours)
        both = [path for path in here if path in there]
        taken = set()
        for pattern in patterns:
            matched = {path for path in both if _matches(path, pattern)}
            if not matched:
                raise UserError(
                    f"--train.init_layers={pattern} matches no layer that this model and "
                    f"{checkpoint} both have: {_common(both, here, there)}"
                )
            taken |= matched
        for path in sorted(taken):
            _refuse_other(path, there[path], here[path], checkpoint)
        return cls(
            tuple(path for path in both if path in taken and not here[path].is_table),
            tuple(path for path in both if path in taken and here[path].is_table),
            tuple(path for path in here if path not in taken),
            tuple(path for path in there if path not in taken),
        )


def _parameters(signature: Mapping[str, Any]) -> dict[str, _Parameter]:
    """The dense parameters, the state and the tables of a signature, by path."""
    return {
        path: _Parameter(part == "tables", tuple(shape))
        for part in ("dense", "state", "tables")
        for path, shape in signature[part].items()
    }


def _matches(path: str, pattern: str) -> bool:
    """Whether a variable lies in a layer whose name, or path, a pattern matches."""
    layers = _layers(path)
    paths = ["/".join(layers[: depth + 1]) for depth in range(len(layers))]
    return any(fnmatch.fnmatchcase(name, pattern) for name in (*layers, *paths))


def _layers(path: str) -> list[str]:
    """Names of the layers that a variable lies in, the outermost first."""
    *layers, variable = path.split("/")
    return layers or [variable]


def _refuse_other(path: str, there: _Parameter, here: _Parameter, checkpoint: str) -> None:
    if there.is_table != here.is_table:
        kinds = {True: "a table", False: "a dense parameter"}
        raise UserError(
            f"--train.init_layers: {path} is {kinds[there.is_table]} in {checkpoint} and "
            f"{kinds[here.is_table]} here; give both jobs the same train.dense_table_bytes, or "
            "name other layers"
        )
    if here.is_table and (there.shape[0] is None) != (here.shape[0] is None):
        kinds = {True: "a table without a vocabulary", False: "a table with a row for each id"}
        raise UserError(
            f"--train.init_layers: {path} is {kinds[there.shape[0] is None]} in {checkpoint} and "
            f"{kinds[here.shape[0] is None]} here, so that its rows belong to other ids; name "
            "other layers, or give it another name"
        )
    if there.shape != here.shape and not (here.is_table and has_grown(there.shape, here.shape)):
        kind = "table" if here.is_table else "variable"
        theirs, ours = (_shape(each.shape) for each in (there, here))
        raise UserError(
            f"--train.init_layers: {kind} {path} is {theirs} in {checkpoint} and {ours} here; name "
            "only layers of equal shapes (a table may have more rows), or give it another name"
        )


def _shape(shape: tuple[int | None, ...]) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"


def _common(both: Iterable[str], here: Iterable[str], there: Iterable[str]) -> str:
    """What both have, or else what either has, in words."""
    if shared := _named_layers(both):
        return f"they share {shared}"
    return f"this one has {_named_layers(here)}, that one {_named_layers(there)}"


def _named_layers(paths: Iterable[str]) -> str:
    layers = list(dict.fromkeys("/".join(_layers(path)) for path in paths))
    more = len(layers) - _NAMED_LAYERS
    return ", ".join(layers[:_NAMED_LAYERS]) + (f" and {more} more" if more > 0 else "")
