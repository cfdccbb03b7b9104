"""Refuses modes that cannot do what else was asked for."""

from tfps.errors import UserError
from tfps.experiment.experiment import EACH, Experiment
from tfps.experiment.mode import AllReduce, Async, Bounded, LocalSGD, Mode, Sync
from tfps.model.stateless_model import StatelessModel
from tfps.optimizers.ftrl import Ftrl
from tfps.optimizers.rules import Rules


def refuse_unsuitable(
    mode: Mode, experiment: Experiment, model: StatelessModel, rules: Rules
) -> None:
    """Refuses settings, models and optimizers that a mode has no way for."""
    has_ftrl = any(isinstance(rule, Ftrl) for rule in (rules.dense, *rules.tables))
    if isinstance(mode, Async) and mode.staleness_power and has_ftrl:
        raise UserError(
            f"--mode.staleness_power={mode.staleness_power}: Ftrl computes a parameter again from "
            "all its gradients, with one learning rate for all of them; use another optimizer, or "
            "leave it out"
        )
    _refuse_tables(mode, model)
    _refuse_clipped_occurrences(mode, rules)
    if isinstance(mode, Sync | Bounded | LocalSGD):
        _refuse_settings(mode, f"--mode.name={mode.name}", experiment)
    if isinstance(mode, Async) and mode.batches_per_exchange > 1:
        asked = f"--mode.batches_per_exchange={mode.batches_per_exchange}"
        _refuse_settings(mode, asked, experiment)
        if model.loss_scaling:
            raise UserError(
                f"{asked} does not scale the loss, which float16 needs; use mixed_bfloat16, or one "
                "batch in an exchange"
            )
    if isinstance(mode, LocalSGD) and has_ftrl:
        raise UserError(
            f"--mode.name={mode.name}: Ftrl computes a parameter again from its slots, so that "
            "differences cannot be added; use another optimizer, or --mode.name=async"
        )


def _refuse_tables(mode: Mode, model: StatelessModel) -> None:
    keyed = ", ".join(table.name for table in model.tables if table.keys)
    if keyed and isinstance(mode, AllReduce):
        raise UserError(
            f"--mode.name={mode.name} has no parameter servers, on which a table without a "
            f"vocabulary lies ({keyed}); use another mode"
        )
    if keyed and isinstance(mode, Async) and mode.batches_per_exchange > 1:
        raise UserError(
            f"--mode.batches_per_exchange={mode.batches_per_exchange}: a worker does not know "
            f"where the rows of a table without a vocabulary are ({keyed}), which it would have to "
            "report for each batch; leave it out"
        )


def _refuse_clipped_occurrences(mode: Mode, rules: Rules) -> None:
    clips = [rule.config["clipvalue"] for rule in rules.tables if rule.clip == "clipvalue"]
    if clips and rules.repeated_ids == EACH and isinstance(mode, Sync | AllReduce):
        raise UserError(
            f"--mode.name={mode.name} with train.repeated_ids=each: clipvalue={clips[0]} clips the "
            "gradient of every occurrence of an id, but its share in the mean of a round is known "
            "when the round closes; use clipnorm, train.repeated_ids=sum or another mode"
        )


def _refuse_settings(mode: Mode, asked: str, experiment: Experiment) -> None:
    depth, bad = experiment.train.pipeline_depth, experiment.data.max_bad_records
    if depth and isinstance(mode, Sync):
        raise UserError(
            f"{asked}: train.pipeline_depth={depth} would pull before a round has closed, and "
            "so without what the round changes; set it to 0, or use --mode.name=bounded"
        )
    if depth and isinstance(mode, LocalSGD):
        raise UserError(
            f"{asked}: train.pipeline_depth={depth} would pull before a worker has pushed "
            "what its own steps have changed; set it to 0, or raise --mode.sync_every"
        )
    if isinstance(mode, Bounded) and depth > mode.max_staleness:
        raise UserError(
            f"{asked}: train.pipeline_depth={depth} pulls that many steps ahead, but "
            f"--mode.max_staleness={mode.max_staleness} allows fewer; lower the one or raise the "
            "other"
        )
    if depth and isinstance(mode, Async):
        raise UserError(
            f"{asked} pulls when it is a batch's turn, but train.pipeline_depth={depth} "
            "pulls earlier; set it to 0"
        )
    if bad:
        raise UserError(
            f"{asked} cannot pass over bad records, but data.max_bad_records={bad}; set it to 0 "
            "and correct the data, or use --mode.name=async"
        )
