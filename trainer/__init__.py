"""The packaged trainer: what every task of a job runs."""

from tfps.storage import settings

# Every program of this package loads TensorFlow after this.
settings.apply()
