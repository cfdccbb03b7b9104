"""Executes the notebooks, and takes out of what they show what tells of the machine."""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

import nbclient
import nbformat
from nbformat import NotebookNode

from tests.project import ROOT

DIRECTORY = ROOT / "notebooks"
NAMES = ("predictions", "first_run")
_PATIENCE = 600  # seconds that any cell may take on a busy machine


def path_of(name: str) -> pathlib.Path:
    """The file of a notebook."""
    return DIRECTORY / f"{name}.ipynb"


def read(name: str) -> NotebookNode:
    """A notebook as it is committed."""
    return nbformat.read(path_of(name), as_version=4)


def set_parameters(notebook: NotebookNode, parameters: Mapping[str, Any]) -> None:
    """Adds other values to those that the cell for them sets.

    Args:
        notebook: It is changed.
        parameters: By name; each is one that the cell sets.
    """
    [cell] = [each for each in notebook.cells if "parameters" in each.metadata.get("tags", [])]
    for name, value in parameters.items():
        assert re.search(rf"^{name} = ", cell.source, re.MULTILINE), name
        cell.source += f"\n{name} = {value!r}"


def client_of(
    notebook: NotebookNode, directory: pathlib.Path, *, has_configs: bool = True
) -> nbclient.NotebookClient:
    """What executes a notebook in a directory.

    What the notebook holds of an earlier time is taken out.

    Args:
        notebook: It is changed.
        directory: In which the kernel runs.
        has_configs: Whether it finds the project's configs there, as in a checkout.
    """
    for cell in cells_of(notebook).values():
        cell.outputs, cell.execution_count = [], None
    if has_configs and not (directory / "configs").exists():
        (directory / "configs").symlink_to(ROOT / "configs")
    return nbclient.NotebookClient(
        notebook,
        timeout=_PATIENCE,
        kernel_name="python3",
        resources={"metadata": {"path": str(directory)}},
        record_timing=False,
    )


def execute(
    name: str, directory: pathlib.Path, parameters: Mapping[str, Any] | None = None
) -> dict[str, NotebookNode]:
    """Executes a notebook from top to bottom, in a kernel of its own.

    Args:
        name: Its name.
        directory: In which the kernel runs.
        parameters: As of `set_parameters`.

    Returns:
        Its cells of code by their ids.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    notebook = read(name)
    set_parameters(notebook, parameters or {})
    client_of(notebook, directory).execute()
    return cells_of(notebook)


def cells_of(notebook: NotebookNode) -> dict[str, NotebookNode]:
    """The cells of code by their ids."""
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


def text_of(cell: NotebookNode) -> str:
    """All text that a cell has put out."""
    return "".join(each.text for each in cell.outputs if each.output_type == "stream")


def pictures_of(cell: NotebookNode) -> list[str]:
    """The pictures that a cell has drawn, as PNG in base64."""
    found = [each.get("data", {}).get("image/png") for each in cell.outputs]
    return [each for each in found if each]


def normalize(notebook: NotebookNode, directory: pathlib.Path) -> None:
    """Takes out what tells of the machine and the moment.

    Args:
        notebook: It is changed.
        directory: In which it was executed.
    """
    notebook.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
    )
    for cell in notebook.cells:
        cell.metadata = {name: x for name, x in cell.metadata.items() if name == "tags"}
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = output.text.replace(f"{directory}/", "")
            elif "data" in output:
                output.metadata = {}
                output.data.pop("text/plain", None)  # says how large a picture is


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Outputs of which none is cut in two, as lines are that come one after the other."""
    found: list[NotebookNode] = []
    for output in outputs:
        is_stream = output.output_type == "stream"
        if is_stream and found and found[-1].get("name") == output.name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found
