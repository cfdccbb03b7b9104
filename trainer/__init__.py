"""The packaged trainer: what every task of a job runs."""

from tfps import storage_settings

# Every program of this package loads TensorFlow after this.
storage_settings.apply()
