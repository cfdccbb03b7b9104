import pytest

from tfps.errors import UserError
from trainer.flags.task_flags import JobPaths

OUTPUT = {
    "AIP_CHECKPOINT_DIR": "gs://b/run/checkpoints/",
    "AIP_MODEL_DIR": "gs://b/run/model/",
    "AIP_TENSORBOARD_LOG_DIR": "gs://b/run/logs/",
}
TRIAL = {
    "AIP_CHECKPOINT_DIR": "gs://b/run/7/checkpoints/",
    "AIP_MODEL_DIR": "gs://b/run/7/model/",
}


@pytest.mark.parametrize(
    ("flag", "environ", "paths"),
    [
        ("runs/x", {}, ("runs/x", "", "")),
        ("gs://b/run", OUTPUT, ("gs://b/run", "gs://b/run/model", "gs://b/run/logs")),
        ("gs://b/run/", OUTPUT, ("gs://b/run", "gs://b/run/model", "gs://b/run/logs")),
        (None, OUTPUT, ("gs://b/run", "gs://b/run/model", "gs://b/run/logs")),
        ("gs://b/run", TRIAL, ("gs://b/run/7", "gs://b/run/7/model", "")),
        ("gs://b/ru", OUTPUT, ("gs://b/ru", "gs://b/run/model", "gs://b/run/logs")),
        ("gs://b/run/deeper", OUTPUT, ("gs://b/run/deeper", "gs://b/run/model", "gs://b/run/logs")),
    ],
)
def test_a_job_writes_to_its_job_dir_or_to_the_platforms_output(flag, environ, paths):
    assert JobPaths.of(flag, environ) == JobPaths(*paths)


def test_there_must_be_a_place():
    with pytest.raises(UserError, match="--job_dir is missing"):
        JobPaths.of(None, {})


def test_an_unknown_layout_is_refused():
    with pytest.raises(UserError, match=r"gs://b/x is no directory OUTPUT/checkpoints/"):
        JobPaths.of("runs/x", {"AIP_CHECKPOINT_DIR": "gs://b/x"})
