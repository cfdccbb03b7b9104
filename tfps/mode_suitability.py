"""Whether a mode can do what else was asked for."""

from tfps.errors import UserError
from tfps.experiment import Experiment
from tfps.mode import SYNC, Mode
from tfps.model import StatelessModel
from tfps.store.ftrl import Ftrl
from tfps.store.rules import Rules


def refuse_unsuitable(
    mode: Mode, experiment: Experiment, model: StatelessModel, rules: Rules
) -> None:
    """Refuses settings, models and optimizers that a mode has no way for.

    Args:
        mode: With a name.
        experiment: What is to be trained.
        model: Its model.
        rules: How its parameters are updated.

    Raises:
        UserError: If there is one.
    """
    if mode.staleness_power and any(isinstance(x, Ftrl) for x in (rules.dense, *rules.tables)):
        raise UserError(
            f"--staleness_power={mode.staleness_power}: Ftrl makes a parameter anew from all its "
            "gradients, with one learning rate for all of them; use another optimizer, or leave it "
            "out"
        )
    if not mode.waits:
        return
    depth, bad = experiment.train.pipeline_depth, experiment.data.max_bad_records
    if depth:
        raise UserError(
            f"--mode={mode.name} trains every batch with the newest parameters, but "
            f"train.pipeline_depth={depth} pulls them earlier; set it to 0"
        )
    if bad:
        raise UserError(
            f"--mode={mode.name} cannot pass over bad records, but data.max_bad_records={bad}; set "
            "it to 0 and correct the data, or use --mode=async"
        )
    if mode.name != SYNC:
        return
    clip = next((rule.clip for rule in (rules.dense, *rules.tables) if rule.clip), "")
    if clip:
        raise UserError(
            f"--mode={mode.name}: an optimizer has {clip}, but the mean of several workers' "
            "gradients lies in parts on the ps, where its norm is not known; leave it out, or use "
            "--mode=async"
        )
    if model.loss_scaling:
        raise UserError(
            f"--mode={mode.name} does not scale the loss, which float16 needs; use mixed_bfloat16, "
            "or --mode=async"
        )
