"""Settings of TensorFlow's gs:// client, which reads them from the environment as it loads."""

import os

# A reader fetches a block in one request and holds it. While it does, the records read ahead are
# trained: a small block arrives before they are used up, a large one costs fewer requests.
READ_BLOCK_MEGABYTES = 8
# What a worker keeps: blocks of the lease it trains and the first of the next one.
WORKER_MEGABYTES = 4 * READ_BLOCK_MEGABYTES
# An attempt ends when no byte has come for so long, or no connection was made.
IDLE_SECONDS = 15
CONNECT_SECONDS = 10
RETRIES = 8
_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS = 0.25, 16.0

SETTINGS = {
    "GCS_READ_CACHE_BLOCK_SIZE_MB": str(READ_BLOCK_MEGABYTES),
    "GCS_REQUEST_CONNECTION_TIMEOUT_SECS": str(CONNECT_SECONDS),
    "GCS_REQUEST_IDLE_TIMEOUT_SECS": str(IDLE_SECONDS),
    "GCS_METADATA_REQUEST_TIMEOUT_SECS": "60",
    "GCS_READ_REQUEST_TIMEOUT_SECS": "120",
    "GCS_WRITE_REQUEST_TIMEOUT_SECS": "600",
    "GCS_RETRY_CONFIG_MAX_RETRIES": str(RETRIES),
    "GCS_RETRY_CONFIG_INIT_DELAY_TIME_US": str(int(1e6 * _FIRST_DELAY_SECONDS)),
    "GCS_RETRY_CONFIG_MAX_DELAY_TIME_US": str(int(1e6 * _LONGEST_DELAY_SECONDS)),
}


def apply() -> None:
    """Sets what the environment does not set already, before TensorFlow loads."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def keep_blocks() -> None:
    """Makes a worker's client keep blocks, before TensorFlow loads; other roles reread none."""
    os.environ.setdefault("GCS_READ_CACHE_MAX_SIZE_MB", str(WORKER_MEGABYTES))
