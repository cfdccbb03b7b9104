"""What would fail only once servers load a model, or once they are asked."""

import math

from cloud.deployment.served_model import ServedModel
from tfps import byte_size
from tfps.errors import UserError
from tfps.export.names import EXAMPLES_SIGNATURE, FEATURES_SIGNATURE
from tfps.export.schema_file import TAKES_EXAMPLES, TAKES_FEATURES

# How records are handed to a server: a JSON object or a line of CSV for each, or serialized
# examples to the signature that answers when none is named.
ROWS, CELLS, RECORDS = "rows", "cells", "records"
_SERVER_BYTES = 512 << 20  # TensorFlow Serving itself, its threads and requests in flight
_GROWTH = 1.2  # what a model takes beyond its variables


def memory_needed(model: ServedModel, versions: int = 1) -> int:
    """Bytes of memory that a server needs.

    Args:
        model: The model.
        versions: How many versions a server holds at once: a server that is to put a new one in
            the place of another loads it before it lets the other go.
    """
    return _SERVER_BYTES + math.ceil(model.variables_bytes * _GROWTH) * versions


def check_memory(model: ServedModel, held: int, where: str, versions: int = 1) -> None:
    """Refuses servers into which a model does not fit.

    Args:
        model: The model.
        held: Bytes of memory of each.
        where: What says so, for the message: `--machine=n2-standard-4`.
        versions: As of `memory_needed`.

    Raises:
        UserError: If it does not fit.
    """
    needed = memory_needed(model, versions)
    if needed > held:
        many = f"{versions} versions of " if versions > 1 else ""
        raise UserError(
            f"{where}: {many}{model.path} with variables of "
            f"{byte_size.show(model.variables_bytes)} need some {byte_size.show(needed)} of "
            f"memory, but a server has {byte_size.show(held)}; take a larger one, or export the "
            "model with --train.export_dtype=bfloat16 or int8"
        )


def check_form(model: ServedModel, form: str, where: str) -> None:
    """Refuses a form of requests in which a model's features cannot be told.

    Args:
        model: The model.
        form: ROWS, CELLS or RECORDS.
        where: What asks for it, for the message: `--instances_format=tf-record`.

    Raises:
        UserError: If they cannot; says what to do.
    """
    wanted = TAKES_EXAMPLES if form == RECORDS else TAKES_FEATURES
    if model.default_takes != wanted:
        raise UserError(
            f"{where}: such requests go to the signature {FEATURES_SIGNATURE}, which must take "
            f"{wanted}, but that of {model.path} takes {model.default_takes or 'nothing'}; "
            f"{_other_form(model)}"
        )
    if form == RECORDS:
        return
    if ragged := [feature.name for feature in model.features if feature.is_ragged]:
        raise UserError(
            f"{where}: {_named(ragged)} of varying length, which such requests cannot tell: "
            f"{_mend_ragged(model)}"
        )
    shaped = [feature.name for feature in model.features if feature.shape]
    if form == CELLS and shaped:
        raise UserError(
            f"{where}: {_named(shaped)} of several values, but a cell holds one; use JSON"
        )


def _named(features: list[str]) -> str:
    """Features as the beginning of a sentence."""
    more = f" and {len(features) - 5} more" if len(features) > 5 else ""
    return f"{', '.join(features[:5])}{more} {'are' if len(features) > 1 else 'is'}"


def _other_form(model: ServedModel) -> str:
    if any(feature.is_ragged for feature in model.features):
        return _mend_ragged(model)
    return "give rows as JSON, or predict on a cluster (--job=predict, docs/predict.md)"


def _mend_ragged(model: ServedModel) -> str:
    named = f"send serialized examples to the signature {EXAMPLES_SIGNATURE}, or "
    can_name = EXAMPLES_SIGNATURE in model.signatures
    return (
        f"{named if can_name else ''}predict a dataset on a cluster (--job=predict, "
        "docs/predict.md)"
    )
