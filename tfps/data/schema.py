"""What a record holds, and whether a dataset's records do."""

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tfps.data.examples import Counts, ValueCounts
from tfps.data.feature import Feature, FeatureSchema
from tfps.data.manifest import Manifest
from tfps.errors import UserError, listed


class Schema(NamedTuple):
    """What a record holds."""

    features: tuple[Feature, ...]
    labels: tuple[Feature, ...]

    @classmethod
    def of(cls, manifest: Manifest) -> "Schema":
        """What a manifest says of its records; of vocabularies it knows the sizes."""
        features, labels = (
            tuple(
                Feature(
                    held["name"],
                    held["dtype"],
                    tuple(held["shape"]),
                    held["vocabulary_size"] or None,
                )
                for held in some
            )
            for some in (manifest.features, manifest.labels)
        )
        return cls(features, labels)

    @property
    def all(self) -> tuple[Feature, ...]:
        return (*self.features, *self.labels)


def check(manifest: Manifest, wanted_schema: Schema, flag: str) -> None:
    """Refuses a dataset whose records hold something else than wanted; the flag named it."""
    held = {schema["name"]: ("feature", schema) for schema in manifest.features}
    held.update({schema["name"]: ("label", schema) for schema in manifest.labels})
    wanted = {feature.name: ("feature", feature.schema()) for feature in wanted_schema.features}
    wanted.update({label.name: ("label", label.schema()) for label in wanted_schema.labels})
    differences = []
    for name in sorted(held.keys() | wanted.keys()):
        if name not in held:
            differences.append(f"{wanted[name][0]} {name!r} is not in the data")
        elif name not in wanted:
            differences.append(f"{held[name][0]} {name!r} is in the data, but not in the config")
        elif held[name][0] != wanted[name][0]:
            differences.append(
                f"{name!r} is a {held[name][0]} in the data, but a {wanted[name][0]} in the config"
            )
        else:
            differences.extend(_differences(name, held[name][1], wanted[name][1]))
    if differences:
        raise UserError(
            f"{flag}={manifest.directory} holds other records than the config's: "
            f"{'; '.join(differences)}. Prepare the data with this config (write_dataset: with its "
            "features= and label=), or name data that was"
        )


def _differences(name: str, held: FeatureSchema, wanted: FeatureSchema) -> list[str]:
    return [
        f"{name!r} has {key} {held.get(key)} in the data, but {value} in the config"
        for key, value in wanted.items()
        if held.get(key) != value
    ]


def notes(counts: Counts, records: int, features: Sequence[Feature]) -> list[str]:
    """What may be wrong with a dataset's features: a line for each with anything."""
    found = []
    for feature in features:
        held = counts.get(feature.name, ValueCounts())
        texts = (
            (held.missing, f"lack it{_counts_as(feature)}"),
            (held.empty, "have an empty list" + ("" if feature.is_ragged else _counts_as(feature))),
            (held.misfit, "hold values of another type or number"),
            (held.not_finite, "hold a NaN or an infinity"),
            (held.outside, f"hold an id outside [0, {feature.vocabulary_size})"),
        )
        said = [f"{share(count, records)} records {text}" for count, text in texts if count]
        if said:
            found.append(f"{feature.name!r}: {', '.join(said)}")
    return found


def is_wrong(counts: ValueCounts, records: int) -> bool:
    """Whether a feature is in no record, or some hold what it cannot be."""
    return bool(counts.misfit or counts.outside or counts.missing == records)


def _counts_as(feature: Feature) -> str:
    """What a record without a value counts as."""
    if feature.is_ragged:
        return ", which is an empty list"
    return "" if feature.default is None else f" and count as {feature.default!r}"


def lacking(feature: Feature, counts: Counts) -> int:
    """Records that cannot be trained, since they have no value of a feature."""
    held = counts.get(feature.name, ValueCounts())
    return 0 if feature.may_be_absent else held.missing + held.empty


def refuse_absent(
    counts: Counts, records: int, features: Sequence[Feature], names: Sequence[str], where: str
) -> None:
    """Refuses features that no record has."""
    for feature in features:
        if records and counts[feature.name].missing == records:
            raise UserError(
                f"{where}: none of the {records:,} records has {feature.name!r} (they have "
                f"{listed(names)}); {instead_of(feature, names)}"
            )


def instead_of(feature: Feature, names: Iterable[str]) -> str:
    """What to do about a feature that no record has."""
    close = difflib.get_close_matches(feature.name, list(names), 1)
    hint = f"did you mean {listed(close)}? " if close else ""
    return f"{hint}The config's features() and label() must name what the records hold"


def refuse_missing(counts: Counts, records: int, schema: Schema, where: str) -> None:
    """Refuses records that lack what has no default, where anybody counted."""
    for feature in schema.all:
        if missing := lacking(feature, counts):
            raise UserError(
                f"{where}: {share(missing, records)} records have no value of {feature.name!r}; "
                f"{ways_out(feature, schema)}"
            )


def not_finite(counts: Counts, records: int, features: Sequence[Feature]) -> str:
    """Which features are NaN or infinite in some records; empty where none is."""
    found = [
        f"{each.name!r} in {share(counts[each.name].not_finite, records)}"
        for each in features
        if each.name in counts and counts[each.name].not_finite
    ]
    return ", ".join(found)


def share(count: int, records: int) -> str:
    """Some of the records, as "12 of 600 (2.00%)"."""
    return f"{count:,} of {records:,} ({count / records:.2%})"


def ways_out(feature: Feature, schema: Schema) -> str:
    """What to do about records that lack a feature or a label."""
    leave_out = "leave these records out of the data"
    if feature in schema.labels:
        return leave_out
    return f"{default_hint(feature)}, or {leave_out}"


def default_hint(feature: Feature) -> str:
    """How a feature says what a missing value counts as."""
    default = {"int64": 0, "float32": 0.0, "string": ""}[feature.dtype]
    shape = f", {feature.shape}" if feature.shape else ""
    return (
        f"say what they count as, such as tfps.Feature({feature.name!r}, {feature.dtype!r}{shape}, "
        f"default={default!r})"
    )
