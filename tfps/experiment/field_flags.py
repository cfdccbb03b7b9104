"""Flags that set fields of an experiment by their dotted names, such as --train.batch_size=512.

No TensorFlow is loaded: launchers look at such flags too.
"""

import re
from collections.abc import Sequence

from tfps.errors import UserError

_FIELD = r"--?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:=(.*))?"
# Former flags, and what sets the same now.
_FORMER = {
    "backup_workers": "mode.backup_workers",
    "batches_per_exchange": "mode.batches_per_exchange",
    "early_stopping": "train.early_stopping",
    "epochs": "train.epochs",
    "evaluator_wait_seconds": "task_wait_seconds",
    "eval_data": "data.eval",
    "export": "train.export",
    "export_dtype": "train.export_dtype",
    "init_from": "train.init_from",
    "init_layers": "train.init_layers",
    "jit_compile": "train.jit_compile",
    "keep_exports": "train.keep_exports",
    "max_bad_records": "data.max_bad_records",
    "max_staleness": "mode.max_staleness",
    "mode": "mode.name",
    "pipeline_depth": "train.pipeline_depth",
    "ps_wait_seconds": "task_wait_seconds",
    "round_seconds": "mode.round_seconds",
    "staleness_power": "mode.staleness_power",
    "sync_every": "mode.sync_every",
    "train_data": "data.train",
    "wire_dtype": "train.wire_dtype",
    "worker_wait_seconds": "task_wait_seconds",
}


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a command line: fields set, `task.dim=8` for `--task.dim=8` or `--task.dim 8`."""
    fields, others = [], []
    rest = iter(arguments)
    for argument in rest:
        match = re.fullmatch(_FIELD, argument, re.DOTALL)
        if not match:
            others.append(argument)
            continue
        value = next(rest, None) if match[2] is None else match[2]
        if value is None:
            raise UserError(f"{argument} has no value; write {argument}=VALUE")
        fields.append(f"{match[1]}={value}")
    return fields, others


def refuse_former(arguments: Sequence[str]) -> None:
    """Refuses flags of former versions, with their present names."""
    found = {}
    for place, argument in enumerate(arguments):
        after = arguments[place + 1 : place + 2]
        if (now := _present(argument, after[0] if after else "")) and now != argument:
            found[argument] = now
    if found:
        ways = ", ".join(f"{now} for {before}" for before, now in found.items())
        raise UserError(f"former flags have other names now; write {ways}")


def _present(argument: str, after: str) -> str:
    """How a flag of former versions is written; empty for any other argument."""
    match = re.fullmatch(r"--?(no)?([a-z_]+)(?:=(.*))?", argument, re.DOTALL)
    if not match:
        return ""
    negation, name, value = match.groups()
    if name == "set" and not negation:
        return f"--{after if value is None else value}"
    if name == "jit_compile":
        return f"--{_FORMER[name]}={'false' if negation else value or 'true'}"
    if name not in _FORMER or negation:
        return ""
    if value is None:
        return f"--{_FORMER[name]}"
    return f"--{_FORMER[name]}={0 if (name, value) == ('sync_every', 'auto') else value}"
