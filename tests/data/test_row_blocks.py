import csv
import gzip
import io
from pathlib import Path

import pytest

from tfps.data.row_blocks import row_blocks
from tfps.errors import UserError

TEXT = 'a,"b\nc",d\ne,f,g\n\nh,"i ""j""\n\nk",l\nm,n "o,p\nq,r\u00e9,s\r\nt,"u\nv"'


def rows(content: bytes) -> list[list[str]]:
    lines = io.StringIO(content.decode(errors="surrogateescape"), newline="\n")
    return list(csv.reader(lines, skipinitialspace=True))


@pytest.mark.parametrize("block_bytes", [1, 7, 16, 40, 1000])
def test_blocks_end_where_rows_do(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(TEXT, newline="")
    blocks = list(row_blocks(str(path), ",", block_bytes))
    assert b"".join(block.content for block in blocks) == TEXT.encode()
    whole = rows(TEXT.encode())
    assert [row for block in blocks for row in rows(block.content)] == whole
    assert [block.before for block in blocks] == [
        sum(block.content.count(b"\n") for block in blocks[:index]) for index in range(len(blocks))
    ]
    assert sum(block.size for block in blocks) == path.stat().st_size
    if block_bytes < 20:
        assert len(blocks) > 2


def test_a_gzip_file_counts_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    text = "".join(f"{number},x\n" for number in range(100_000))
    path.write_bytes(gzip.compress(text.encode()))
    blocks = list(row_blocks(str(path), ",", 10_000))
    assert b"".join(block.content for block in blocks).decode() == text
    assert sum(block.size for block in blocks) == path.stat().st_size
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="is not a whole gzip file"):
        list(row_blocks(str(path), ","))


def test_bytes_that_are_no_text_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'\xff,"a\nb"\nc,d\ne')
    blocks = list(row_blocks(str(path), ",", 8))
    assert b"".join(block.content for block in blocks) == path.read_bytes()
    assert [row for block in blocks for row in rows(block.content)] == [
        ["\udcff", "a\nb"],
        ["c", "d"],
        ["e"],
    ]
