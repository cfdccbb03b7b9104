"""The page in a real browser: whole on a desk and on a telephone, and alone in the world."""

import json
import pathlib
import re
import subprocess

import pytest

from tests.browser import chromium, in_browser
from tests.trainer.page.jobs import events, write
from trainer.page.job_record import JobRecord
from trainer.page.page import page

pytestmark = pytest.mark.slow
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# What the test adds to the page: where its parts lie, as the page's title.
MEASURE = """<script>addEventListener("load", () => {
  const box = (each) => { const r = each.getBoundingClientRect();
    return [r.left, r.right, r.top, r.bottom]; };
  const texts = [...document.querySelectorAll("svg")].map(
    (svg) => [...svg.querySelectorAll("text")].map(box));
  document.title = JSON.stringify({ width: innerWidth, scroll: document.documentElement.scrollWidth,
    charts: [...document.querySelectorAll("svg")].map(box), texts });
  if (parent !== window) parent.postMessage(document.title, "*");
});</script>"""


# Chromium's windows are no narrower than 500 pixels; a frame in one may be.
FRAME = """<!doctype html><title>-</title><body style="margin: 0">
<iframe src="{name}" style="border: 0; width: {width}px; height: 1900px"></iframe><script>
addEventListener("message", (event) => {{ document.title = event.data; }});</script>"""


def framed(file, width):
    """A file that shows another one as wide as a telephone, and takes its title."""
    frame = file.with_name(f"frame-{width}.html")
    frame.write_text(FRAME.format(name=file.name, width=width))
    return frame


def browse(file, directory, width):
    """Loads a file; returns what the browser makes of it, says of it, and which hosts it asks."""
    log = directory / f"{file.stem}-{width}.json"
    if width < 500:
        file = framed(file, width)
    command = [chromium(), *QUIET, f"--window-size={max(width, 500)},2000", f"--log-net-log={log}"]
    command += ["--enable-logging=stderr", f"--user-data-dir={directory / str(width)}"]
    done = subprocess.run(
        [*command, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    asked = set(re.findall(r'"url":"https?://([^/"]*)', log.read_text()))
    return done.stdout, said, asked


def overlap(a, b):
    """Whether two boxes have more than a pixel in common."""
    return min(a[1], b[1]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[2], b[2]) > 1


@in_browser
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("count", [1, 2])
def test_all_of_the_page_is_seen(tmp_path: pathlib.Path, width: int, count: int) -> None:
    jobs = [
        JobRecord.read(write(tmp_path / f"job-{n}", events(**{"train.seed": str(n)})))
        for n in range(count)
    ]
    file = tmp_path / "report.html"
    file.write_text(page(jobs))
    _, said, asked = browse(file, tmp_path, width)
    nothing = tmp_path / "nothing.html"
    nothing.touch()
    _, _, its_own = browse(nothing, tmp_path, width)  # a browser asks its maker for this and that
    assert (said, asked - its_own) == ([], set())
    file.write_text(page(jobs).replace("</head>", f"{MEASURE}</head>"))
    dom, _, _ = browse(file, tmp_path, width)
    [title] = re.findall("<title>(.*?)</title>", dom, re.DOTALL)[:1]
    found = json.loads(title)
    assert found["scroll"] <= found["width"] == width
    assert len(found["charts"]) == (6 if count == 1 else 4)
    for left, right, top, bottom in found["charts"]:
        assert 0 <= left < right <= found["width"]
        assert right - left > 280
        assert bottom - top > 150
    for texts in found["texts"]:
        for index, text in enumerate(texts):
            assert not any(overlap(text, other) for other in texts[:index])
