"""Flags of the mode; the config's `mode` says more of each."""

from typing import Any

from absl import flags

from tfps.experiment.mode import MODES

_FLAGS = flags.FLAGS
_AUTO = "auto"

flags.DEFINE_enum(
    "mode",
    None,
    MODES,
    "How the workers' updates come together; default: async in a cluster, allreduce in one without "
    "ps, local without a cluster (overrides mode.name).",
)
flags.DEFINE_integer(
    "backup_workers", None, "Workers a round does not wait for (overrides mode.backup_workers).", 0
)
flags.DEFINE_integer(
    "max_staleness",
    None,
    "Steps a worker may be ahead of the slowest (overrides mode.max_staleness).",
    0,
)
flags.DEFINE_float(
    "staleness_power",
    None,
    "Learning rate by staleness s: times (1 + s)^-power (overrides mode.staleness_power).",
    0.0,
)
flags.DEFINE_string(
    "sync_every",
    None,
    "Steps between a pull and its push, or auto: as few as cost little (overrides "
    "mode.sync_every).",
)
flags.register_validator(
    "sync_every",
    lambda text: text in (None, _AUTO) or (text.isdecimal() and int(text) > 0),
    "it must be a number of steps, 1 or more, or auto",
)
flags.DEFINE_integer(
    "batches_per_exchange",
    None,
    "Batches for which a worker pulls, and pushes, at once (overrides mode.batches_per_exchange).",
    1,
)
flags.DEFINE_float(
    "round_seconds", None, "Limit of a wait for a lost worker (overrides mode.round_seconds).", 0.0
)


def overridden() -> dict[str, Any]:
    """What the flags override of a config, by field; None for what was not given."""
    steps = _FLAGS.sync_every
    return {
        "mode.name": _FLAGS.mode,
        "mode.backup_workers": _FLAGS.backup_workers,
        "mode.max_staleness": _FLAGS.max_staleness,
        "mode.staleness_power": _FLAGS.staleness_power,
        "mode.sync_every": 0 if steps == _AUTO else steps and int(steps),
        "mode.batches_per_exchange": _FLAGS.batches_per_exchange,
        "mode.round_seconds": _FLAGS.round_seconds,
    }
