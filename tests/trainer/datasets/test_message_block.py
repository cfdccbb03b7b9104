"""Messages as rows."""

import json

import pytest

from configs.smoke import Smoke
from tfps.data.row_format import BadRow
from trainer.datasets.kafka_messages import Message, Partition
from trainer.datasets.message_block import MessageBlock, row_of
from trainer.datasets.row_encoding import one_by_one
from trainer.datasets.row_layout import RowLayout

PARTITION = Partition("clicks", 0)
ROW = {"number_1": 1, "number_2": 2, "number_3": 3, "number_4": 4, "token": 5, "label": 1}


@pytest.mark.parametrize("rows", ["of the task", "by names"])
def test_a_kept_column_that_no_message_has_is_empty(rows):
    task = Smoke()
    layout = RowLayout.of(task, ("place",))
    if rows == "by names":
        layout = RowLayout(None, layout.features, layout.kept)
    given = ROW | {"numbers": [1, 2, 3, 4]}
    message = Message(7, 0, json.dumps(given).encode())
    block = MessageBlock.of(PARTITION, [(7, row_of(PARTITION, message))], [], layout, 10)
    row_format = layout.of_block(block)
    [(_, values)] = list(block.rows(row_format, pytest.fail))
    assert values["place"] in ("", b"", [])
    assert int(values["token"]) == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1]", "is no JSON object"),
        ('{"place": {}}', "column 'place' is an object, not a cell"),
        ('{"place": [[1]]}', "column 'place' is a list of objects or lists, not a cell"),
        ('{"place": [{"a": 1}]}', "column 'place' is a list of objects or lists, not a cell"),
        ('{"place": "\\ud800"}', "surrogates not allowed"),
        ('{"\\ud800": 1}', "surrogates not allowed"),
        ('{"place": ' + "[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_row_is_named_with_its_offset(text, reason):
    with pytest.raises(BadRow, match=f"^topic clicks partition 0 offset 7: .*{reason}"):
        row_of(PARTITION, Message(7, 0, text.encode()))


@pytest.mark.parametrize("token", [1 << 63, [], [5, 6]])
@pytest.mark.parametrize("others", [(), (ROW,)])
def test_a_message_with_a_bad_cell_is_left_out_whatever_comes_with_it(token, others):
    layout = RowLayout.of(Smoke(), ())
    rows = [*enumerate([*others, ROW | {"token": token}], 7)]
    block = MessageBlock.of(PARTITION, rows, [], layout, 10)
    bad = []
    row_format = layout.of_block(block)
    good = list(one_by_one(block, row_format, Smoke().schema().all, bad.append))
    assert len(good) == len(others)
    [told] = bad
    assert f"topic clicks partition 0 offset {7 + len(others)}" in str(told)
    assert "token" in str(told)


def test_a_large_number_that_no_feature_needs_is_no_matter():
    layout = RowLayout.of(Smoke(), ())
    block = MessageBlock.of(PARTITION, [(7, ROW | {"session": 1 << 63})], [], layout, 10)
    [(_, values)] = list(block.rows(layout.of_block(block), pytest.fail))
    assert int(values["token"]) == 5
