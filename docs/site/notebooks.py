"""Notebooks as pages: their Markdown, their code, and below it what it gave."""

from __future__ import annotations

import posixpath
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from docs.site.fences import fence
from docs.site.places import Places, adapt

INDEX = "notebooks/index.md"
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""Colours of a terminal."""
PICTURE = re.compile(r"<svg\b.*?</svg>", re.DOTALL)


def read_notebook(path: Path) -> NotebookNode:
    """Return a notebook in the newest format."""
    # Its functions have no types.
    return nbformat.read(path, as_version=4)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


def read_prose(path: Path) -> str:
    """Return the Markdown of a notebook."""
    return "\n\n".join(cell.source for cell in read_notebook(path).cells if cell.cell_type == "markdown")


def write_notebook(path: Path, name: str, places: Places) -> Iterator[tuple[str, str | bytes]]:
    """Yield the files of a notebook on the site by their places: the pictures that its cells gave, and its page.

    Raw cells are for converters, and are left out. Raises ValueError for an output of which nothing can be shown.
    """
    uri, parts = places.uris[name], list[str]()
    pictures: dict[str, str | bytes] = {}
    for cell in read_notebook(path).cells:
        if cell.cell_type == "markdown":
            parts.append(adapt(places.move(cell.source, name)))
        elif cell.cell_type == "code":
            parts.append(fence(cell.source, "python", f"In[{cell.execution_count}]"))
            shown = "\n".join(_write_output(output, uri.removesuffix(".md"), pictures) for output in cell.outputs)
            parts += [f'<div class="output" markdown>\n\n{shown}\n</div>'] if shown else []
    parts.insert(1, f"[Download the notebook]({path.name}){{download={path.name}}}")
    yield from pictures.items()
    yield uri, "\n\n".join(parts)


def write_notebooks(notebooks: Mapping[str, Path]) -> str:
    """Return the index of the notebooks, which are given by the places of their pages."""
    text = "# Notebooks\n\nEach page shows a notebook and what its cells gave, and offers the notebook for download.\n"
    for uri, path in notebooks.items():
        heading, _, rest = read_prose(path).partition("\n\n")
        about = rest.partition("\n\n")[0]
        link = posixpath.relpath(uri, posixpath.dirname(INDEX))
        text += f"\n## [{heading.removeprefix('# ')}]({link})\n\n{about}\n"
    return text


def _write_output(output: NotebookNode, stem: str, pictures: dict[str, str | bytes]) -> str:
    """Return an output as Markdown, and add its pictures by their places.

    Of HTML only the pictures are taken. As files they follow the colours of the page, and run nothing.
    """
    if output.output_type == "stream":
        return fence(ESCAPE.sub("", output.text))
    if output.output_type == "error":
        return fence(ESCAPE.sub("", "\n".join(output.traceback)))
    found: list[tuple[str, str | bytes]] = [("svg", each) for each in PICTURE.findall(output.data.get("text/html", ""))]
    if not found and "image/png" in output.data:
        found = [("png", b64decode(output.data["image/png"]))]
    text = ""
    for suffix, content in found:
        place = f"{stem}-{len(pictures) + 1}.{suffix}"
        pictures[place] = content
        file = posixpath.basename(place)
        text += f"[![picture {len(pictures)} of the notebook]({file})]({file}){{.plan}}\n\n"
    if not text and "text/plain" not in output.data:
        raise ValueError(f"{stem}: the site shows no {', '.join(output.data)}")
    return text or fence(output.data["text/plain"])
