"""What a record holds, and whether a dataset's records do."""

from typing import Any, NamedTuple

from tfps.data.feature import Feature
from tfps.data.manifest import Manifest
from tfps.errors import UserError


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
        """Both, the features first."""
        return (*self.features, *self.labels)


def check(manifest: Manifest, wanted_schema: Schema, flag: str) -> None:
    """Refuses a dataset whose records hold something else than what is wanted.

    Args:
        wanted_schema: What its records must hold.
        flag: What named the dataset, for the message; for example `--data.train`.
    """
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


def _differences(name: str, held: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    return [
        f"{name!r} has {key} {held.get(key)} in the data, but {value} in the config"
        for key, value in wanted.items()
        if held.get(key) != value
    ]
