"""Flags of the programs that write a dataset's records in a drawn order."""

from absl import flags

_FLAGS = flags.FLAGS


def define() -> None:
    flags.DEFINE_enum(
        "shuffle",
        "none",
        ["none", "whole"],
        "Order of the records: as they come, or drawn over the whole dataset.",
    )
    flags.DEFINE_integer("shuffle_seed", 0, "Of the order that is drawn.", lower_bound=0)


def seed() -> int | None:
    """Of the order that is drawn; None where the records stay in theirs."""
    return int(_FLAGS.shuffle_seed) if _FLAGS.shuffle == "whole" else None
