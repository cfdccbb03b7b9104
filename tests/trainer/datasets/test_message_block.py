"""Messages as rows."""

import json

import pytest

from configs.smoke import Smoke
from trainer.datasets.kafka_messages import Message, Partition
from trainer.datasets.message_block import MessageBlock, row_of
from trainer.datasets.row_layout import RowLayout

PARTITION = Partition("clicks", 0)


@pytest.mark.parametrize("rows", ["of the task", "by names"])
def test_a_kept_column_that_no_message_has_is_empty(rows):
    task = Smoke()
    layout = RowLayout.of(task, ("place",))
    if rows == "by names":
        layout = RowLayout(None, layout.features, layout.kept)
    given = {"number_1": 1, "number_2": 2, "number_3": 3, "number_4": 4, "token": 5, "label": 1}
    given |= {"numbers": [1, 2, 3, 4]}
    message = Message(7, 0, json.dumps(given).encode())
    block = MessageBlock.of(PARTITION, [(7, row_of(PARTITION, message))], [], layout, 10)
    row_format = layout.of_block(block)
    [(_, values)] = list(block.rows(row_format, pytest.fail))
    assert values["place"] in ("", b"", [])
    assert int(values["token"]) == 5
