"""What is put behind an address, on whatever platform."""

import dataclasses

from cloud.deployment.served_model import ServedModel
from cloud.deployment.server_settings import ServerSettings
from tfps.errors import UserError


@dataclasses.dataclass(frozen=True)
class Deployment(ServerSettings):
    """One model, on how many machines of which kind."""

    model: ServedModel

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_batch_size and any(feature.is_ragged for feature in self.model.features):
            raise UserError(
                f"--max_batch_size={self.max_batch_size}: the model has features of varying "
                "length, whose requests TensorFlow Serving cannot put together; leave it out"
            )
