import os
import pathlib

import pytest

from tfps.job_dir.chief_fence import ChiefFence, SupersededError


def test_the_last_chief_counts(tmp_path: pathlib.Path) -> None:
    first = ChiefFence.take_over(str(tmp_path))
    first.check()
    second = ChiefFence.take_over(str(tmp_path))
    second.check()
    with pytest.raises(SupersededError, match=rf"another chief \(process {os.getpid()} at "):
        first.check()


@pytest.mark.parametrize("content", [None, "", "{"])
def test_a_file_that_tells_of_nobody_is_no_permission(
    tmp_path: pathlib.Path, content: str | None
) -> None:
    fence = ChiefFence.take_over(str(tmp_path))
    (tmp_path / "chief.json").unlink()
    if content is not None:
        (tmp_path / "chief.json").write_text(content)
    with pytest.raises(SupersededError, match="process unknown at unknown"):
        fence.check()
