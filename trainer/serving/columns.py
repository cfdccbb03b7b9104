"""The values of a request, input by input, from rows or from columns."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tfps.data.feature import Feature
from tfps.model.inputs import row_lengths_of, signature_specs
from trainer.serving.json_body import members, shown
from trainer.serving.json_values import UnfitValueError, flat_values, is_encoded
from trainer.serving.refusal import listed, unfit


@dataclasses.dataclass(frozen=True)
class Columns:
    """What a request gives for each input, as JSON.

    Attributes:
        values: By input name, a value for each record. Where the row lengths of a feature `(None,)`
            are given, as the signature has them, the values of all records laid end to end.
    """

    values: Mapping[str, Sequence[Any]]
    has_rows: bool
    count: int

    def read(self, feature: Feature, is_laid_out: bool = False) -> list[list[Any]]:
        """The values of each of an input's elements.

        Args:
            is_laid_out: Whether its elements are the values of all records, laid end to end.
        """
        found = []
        for index, value in enumerate(self.values[feature.name]):
            try:
                found.append(flat_values(value, feature))
            except UnfitValueError as error:
                raise unfit(f"{self._place(index, feature.name, is_laid_out)} {error}") from None
        return found

    def _place(self, index: int, name: str, is_laid_out: bool) -> str:
        if self.has_rows:
            return f"instances[{index}]: feature {name!r}"
        if is_laid_out:
            return f"inputs: value {index} of feature {name!r}"
        return f"inputs: feature {name!r} of record {index}"


def read_columns(content: Any, has_rows: bool, features: Sequence[Feature]) -> Columns:
    """What a request gives for each input."""
    return _of_rows(content, features) if has_rows else _of_columns(content, features)


def _of_rows(instances: Any, features: Sequence[Feature]) -> Columns:
    if not isinstance(instances, list):
        raise unfit(f'"instances" is {shown(instances)}, not a list of records')
    if not instances:
        raise unfit('"instances" has no record')
    if not _is_object(instances[0]):
        name = _single_input(features, "instances[0]", instances[0])
        for row, instance in enumerate(instances):
            if _is_object(instance):
                raise unfit(f"instances[{row}] is an object, but instances[0] is a bare value")
        return Columns({name: instances}, True, len(instances))
    first = instances[0].keys()
    for row, instance in enumerate(instances):
        if not _is_object(instance):
            raise unfit(f"instances[{row}] is {shown(instance)}, but instances[0] is an object")
        _check_names(members(instance, f"instances[{row}]"), features, f"instances[{row}]")
        if instance.keys() != first:
            [name, *_] = sorted(instance.keys() ^ first)
            has = "is given" if name in instance else "is missing"
            raise unfit(f"instances[{row}]: input {name!r} {has}, unlike in instances[0]")
    columns = {name: [instance[name] for instance in instances] for name in first}
    return Columns(columns, True, len(instances))


def _of_columns(inputs: Any, features: Sequence[Feature]) -> Columns:
    if not _is_object(inputs):
        inputs = {_single_input(features, '"inputs"', inputs): inputs}
    _check_names(members(inputs, '"inputs"'), features, "inputs")
    for name, value in inputs.items():
        if not isinstance(value, list):
            raise unfit(
                f"inputs: feature {name!r} is {shown(value)}, not a list with a value per record"
            )
    laid_end_to_end = {feature.name for feature in features if row_lengths_of(feature) in inputs}
    counts = {name: len(value) for name, value in inputs.items() if name not in laid_end_to_end}
    first, count = next(iter(counts.items()))
    for name, other in counts.items():
        if other != count:
            raise unfit(f"inputs: {name!r} has {other} records, but {first!r} has {count}")
    if not count:
        raise unfit('"inputs" has no record')
    return Columns(inputs, False, count)


def _is_object(value: Any) -> bool:
    """Whether a value names inputs, and is not bytes in base64."""
    return isinstance(value, dict) and not is_encoded(value)


def _single_input(features: Sequence[Feature], where: str, value: Any) -> str:
    """The name of the one input, which may be left out."""
    names = list(signature_specs(features))
    if len(names) > 1:
        raise unfit(f"{where} is {shown(value)}, not an object with the inputs {listed(names)}")
    return names[0]


def _check_names(given: Collection[str], features: Sequence[Feature], where: str) -> None:
    allowed = signature_specs(features)
    unknown = [name for name in given if name not in allowed]
    if unknown:
        raise unfit(
            f"{where}: {shown(unknown[0])} is no input of the model, which has {listed(allowed)}"
        )
    missing = [feature.name for feature in features if feature.name not in given]
    if missing:
        raise unfit(f"{where}: feature {missing[0]!r} is missing")
