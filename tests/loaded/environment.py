"""Whether a program could be a fork of a process that was loaded in another environment."""

from collections.abc import Mapping

from tfps.storage import tf_settings

# What the trainer's programs set themselves before they load TensorFlow.
DEFAULTS = {"GRPC_FAIL_FAST": "use_caller", "KERAS_BACKEND": "tensorflow", **tf_settings.SETTINGS}
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_USUAL_LEVELS = ("2", "3")
# What no library reads as it loads: a cluster, and what the tests tell each other.
_LATE = ("TF_CONFIG", "CLUSTER_SPEC", "PWD", "OLDPWD", "_")
_LATE_PREFIXES = ("TFPS_", "PYTEST_", "CLOUD_ML_", "AIP_", "TF_CONFIG_")


def is_same(environ: Mapping[str, str], loaded: Mapping[str, str]) -> bool:
    """Whether loading would have read the same.

    Args:
        environ: Of the program.
        loaded: That in which everything was loaded.
    """
    return _read(environ) == _read(loaded)


def _read(environ: Mapping[str, str]) -> dict[str, str]:
    found = {
        name: value
        for name, value in (DEFAULTS | dict(environ)).items()
        if name not in _LATE and not name.startswith(_LATE_PREFIXES)
    }
    if found.get(_LEVEL) in _USUAL_LEVELS:
        del found[_LEVEL]
    return found
