"""What the chief's machine needs, and what it is told when it has less."""

import pytest

from tests.planner.test_memory import layout
from tfps import byte_size
from tfps.errors import UserError
from tfps.planner.memory import (
    PROCESS_BYTES,
    WORKING_BYTES,
    ChiefMemory,
    ExportSize,
    Placement,
    worker_bytes,
)

PLACED = layout({16: [200_000]}, parts=2)
PLACEMENT = Placement.of(PLACED, workers=2)
EXPORT = ExportSize.of(PLACED)


def refusal(memory):
    memory.check(memory.needed_bytes, "the chief")
    with pytest.raises(UserError) as raised:
        memory.check(memory.needed_bytes - 1, "the chief")
    return str(raised.value)


def test_a_chief_holds_the_model_that_it_exports():
    memory = ChiefMemory.of(PLACEMENT, EXPORT, has_parameters=False, works=False)
    assert memory.needed_bytes == EXPORT.process_bytes > 3 * 200_000 * 16 * 4
    needed, held = byte_size.show(memory.needed_bytes), byte_size.show(EXPORT.held_bytes)
    assert refusal(memory) == (
        f"the chief needs about {needed}, but may have {needed}; give it more memory, or have it "
        f"need less; {held} of it for the model that is exported (--train.export=none exports "
        "none, and --train.export_dtype=bfloat16 or int8 holds no table for it)"
    )


def test_tables_in_slices_are_not_held():
    sliced = ExportSize.of(PLACED, "int8")
    memory = ChiefMemory.of(PLACEMENT, sliced, has_parameters=False, works=False)
    assert memory.export_bytes < 3 * 200_000 * 16
    assert "--train.export_dtype" not in refusal(memory)
    assert "(--train.export=none exports none)" in refusal(memory)


def test_the_worker_beside_the_chief_is_on_the_same_machine():
    memory = ChiefMemory.of(PLACEMENT, None, has_parameters=False, works=True)
    beside = worker_bytes(PLACEMENT)
    assert memory.needed_bytes == PROCESS_BYTES + WORKING_BYTES + beside
    told = f"{byte_size.show(beside)} of it for the worker next to it (--nochief_works"
    assert told in refusal(memory)
    assert "export" not in refusal(memory)


def test_one_process_holds_the_parameters_too():
    alone = Placement.of(PLACED.over(1), workers=1)
    memory = ChiefMemory.of(alone, EXPORT, has_parameters=True, works=False)
    assert memory.needed_bytes == alone.needed_bytes(0) + EXPORT.held_bytes
    held = byte_size.show(memory.parameter_bytes)
    assert f"{held} of it for parameters, which several ps would share" in refusal(memory)
