"""The packaged trainer: what every task of a job runs."""

from tfps.storage import tf_settings

# Every program of this package loads TensorFlow after this.
tf_settings.apply()
