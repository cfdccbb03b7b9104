"""The flag that says where the model of a job is deployed."""

from typing import TYPE_CHECKING

from absl import flags

from tfps.errors import UserError

if TYPE_CHECKING:  # it loads TensorFlow, which must wait for the role's environment
    from trainer.chief.deploying import DeployPlan

_FLAGS = flags.FLAGS

flags.DEFINE_string(
    "deploy_to",
    None,
    "Deploy the exported model at the end: flags of cloud.deploy but --model, in quotes, such as "
    "'--target=kubernetes --apply --name=clicks'.",
)


def deploy_plan(is_pass: bool) -> "DeployPlan | None":
    """What is deployed; None for nothing.

    Args:
        is_pass: Whether the job exports nothing, since it makes a pass over a dataset.
    """
    if not _FLAGS.deploy_to:
        return None
    if is_pass:
        raise UserError(f"--deploy_to is for a job that trains, not --job={_FLAGS.job}")
    from trainer.chief.deploying import DeployPlan

    return DeployPlan.parse(_FLAGS.deploy_to, _FLAGS.job_dir)
