"""The browser of this machine, which some tests need.

Where TFPS_BROWSER is set, as `make slow` sets it, they fail without one; else they are skipped.
"""

import os
import shutil

import pytest

_CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_DRIVER = shutil.which("chromedriver")
_MISSING = "needs a browser: apt-get install chromium chromium-driver"
in_browser = pytest.mark.skipif(
    "TFPS_BROWSER" not in os.environ and not (_CHROMIUM and _DRIVER), reason=_MISSING
)


def chromium() -> str:
    """Path of the browser."""
    assert _CHROMIUM, _MISSING
    return _CHROMIUM


def driver() -> str:
    """Path of what drives it."""
    assert _DRIVER, _MISSING
    return _DRIVER
