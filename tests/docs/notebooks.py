"""The notebooks of docs/notebooks, executed: a notebook is its own source, and its outputs are written by this.

``python -m tests.docs.notebooks`` executes all of them, or those that are named (``gan``), and writes their outputs.
Cells with the tag `varies` show numbers that depend on the processor.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
VARIES = "varies"
SECONDS = 120
"""How long one cell may take on a busy machine."""


def read(path: Path) -> NotebookNode:
    """Return a notebook as it is in its file."""
    return nbformat.read(path, as_version=4)


def execute(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook with the outputs of its cells, run in an empty folder; raise CellExecutionError."""
    fresh = nbformat.from_dict(notebook)
    with TemporaryDirectory() as home, TemporaryDirectory() as folder:
        places = dict.fromkeys(("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"), home)
        settings = {**places, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        with patch.dict(os.environ, settings):
            client = NotebookClient(
                fresh,
                timeout=SECONDS,
                record_timing=False,
                coalesce_streams=True,
                resources={"metadata": {"path": folder}},
            )
            manager = client.create_kernel_manager()
            manager.transport, manager.ip = "ipc", f"{home}/kernel"  # sockets of the file system: nobody else listens
            client.execute()
    return tidy(fresh)


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook with nothing in it that depends on who ran it: numbered cells, the least metadata."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number:02}"
        cell.metadata = nbformat.from_dict({"tags": cell.metadata["tags"]} if cell.metadata.get("tags") else {})
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata = NotebookNode()
            if "image/png" in output.get("data", {}):
                output.data.pop("image/jpeg", None)  # the same picture again
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook."""
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def list_texts(notebook: NotebookNode) -> Mapping[str, list[tuple[str, str]]]:
    """Return what the cells show in words by their names: by kind, what was printed and what a value looks like."""
    return {
        cell.id: [pair for output in cell.outputs for pair in _list_texts(output)]
        for cell in notebook.cells
        if cell.cell_type == "code" and VARIES not in cell.metadata.get("tags", ())
    }


def _list_texts(output: NotebookNode) -> list[tuple[str, str]]:
    if output.output_type == "stream":
        return [(output.name, output.text)]
    return [(kind, text) for kind, text in sorted(output.data.items()) if not kind.startswith("image/")]


if __name__ == "__main__":
    for chosen in sys.argv[1:] or NOTEBOOKS:
        write(execute(read(NOTEBOOKS[chosen])), NOTEBOOKS[chosen])
