"""What is committed of the notebooks: whole, fresh, and without a trace of a machine."""

import base64
import re

import nbformat
import pytest

from tests.notebooks.running import NAMES, cells_of, path_of, pictures_of, read, text_of

TRACES = r"/home/|/root/|/tmp/|/Users/|/var/|/content/|\x1b\["


@pytest.fixture(params=NAMES, name="name")
def name_fixture(request):
    return request.param


def test_it_is_a_notebook_as_jupyter_writes_it(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert path_of(name).read_text() == f"{nbformat.writes(notebook, indent=1).rstrip()}\n"
    assert path_of(name).stat().st_size < 1_000_000


def test_all_cells_were_executed_in_their_order_without_an_error(name):
    cells = cells_of(read(name)).values()
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data"}
    assert {output.name for output in outputs if output.output_type == "stream"} == {"stdout"}


def test_nothing_tells_of_the_machine_and_the_moment(name):
    notebook = read(name)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)
    for cell in cells_of(notebook).values():
        assert not re.search(TRACES, cell.source + text_of(cell)), cell.id


def test_cells_are_short_and_stand_between_prose(name):
    cells = read(name).cells
    assert cells[0].cell_type == cells[-1].cell_type == "markdown"
    ids = [cell.id for cell in cells]
    assert len(set(ids)) == len(ids)
    for cell in cells:
        assert len(cell.source.splitlines()) <= 30, cell.id
    kinds = [cell.cell_type for cell in cells]
    assert kinds.count("markdown") >= 0.8 * kinds.count("code")


def test_its_links_lead_somewhere(name):
    text = "".join(cell.source for cell in read(name).cells if cell.cell_type == "markdown")
    targets = [each for each in re.findall(r"\]\(([^)]+)\)", text) if "://" not in each]
    assert targets
    for target in targets:
        assert (path_of(name).parent / target).exists(), target


def test_the_auc_that_it_shows_is_that_of_the_report():
    text = text_of(cells_of(read("predictions"))["data"])
    measured, told = re.search(r"AUC ([\d.]+); the report says ([\d.]+)\.", text).groups()
    assert float(measured) == pytest.approx(float(told), abs=1e-6)
    assert float(measured) > 0.9


def test_its_pictures_are_pictures():
    cells = cells_of(read("predictions"))
    drawn = {name: pictures_of(cell) for name, cell in cells.items() if pictures_of(cell)}
    assert set(drawn) == {"roc", "calibration", "groups", "importance", "explain", "plane"}
    for pictures in drawn.values():
        assert base64.b64decode(pictures[0]).startswith(b"\x89PNG")
