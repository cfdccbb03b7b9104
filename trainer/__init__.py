"""The packaged trainer: the programs that people and the tasks of a job run."""

from tfps.storage import tf_settings

# Every program of this package loads TensorFlow after this.
tf_settings.apply()
