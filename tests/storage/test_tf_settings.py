import os
import subprocess
import sys

from tfps.storage import tf_settings


def test_the_programs_set_what_is_not_set_and_load_no_tensorflow_before():
    code = "import os, sys, trainer; assert 'tensorflow' not in sys.modules; print(os.environ)"
    kept = {k: v for k, v in os.environ.items() if k not in tf_settings.SETTINGS}
    own = {"GCS_READ_CACHE_BLOCK_SIZE_MB": "3"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=kept | own, capture_output=True, text=True, check=True
    ).stdout
    for name, value in (tf_settings.SETTINGS | own).items():
        assert f"'{name}': '{value}'" in said


def test_a_read_without_an_answer_ends_before_a_run_is_taken_for_stalled():
    delays = [min(0.25 * 2**retry, 16.0) for retry in range(tf_settings.RETRIES)]
    seconds = (tf_settings.RETRIES + 1) * tf_settings.IDLE_SECONDS + sum(delays)
    assert 170 < seconds < 200  # as docs/storage.md says; --stall_seconds is 600


def test_blocks_are_kept_where_the_environment_says_nothing_else(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    tf_settings.keep_blocks()
    assert os.environ["GCS_READ_CACHE_MAX_SIZE_MB"] == "32"
    os.environ["GCS_READ_CACHE_MAX_SIZE_MB"] = "0"
    tf_settings.keep_blocks()
    assert os.environ["GCS_READ_CACHE_MAX_SIZE_MB"] == "0"
