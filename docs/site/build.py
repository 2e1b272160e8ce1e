"""All pages of the site: those of docs/, those from elsewhere in the repository, and those that are generated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from docs.site.gallery import INDEX, Example, find_examples, write_example, write_index
from docs.site.indexes import read_titles, write_decisions, write_errors
from docs.site.notebooks import INDEX as NOTEBOOKS
from docs.site.notebooks import read_prose, write_notebook, write_notebooks
from docs.site.places import Places, adapt, find_targets
from docs.site.sources import write_file, write_folder

RENAMED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "docs/README.md": "pages.md",
    "docs/adr": "adr/index.md",
    "docs/errors": "errors/index.md",
    "docs/notebooks": NOTEBOOKS,
    "examples": INDEX,
}
"""Files and folders whose page has a name of its own."""


def write_site(root: Path) -> dict[str, str | bytes]:
    """Return the generated files of the site by their places: every page, and the pictures that pages show besides."""
    examples = find_examples(root / "examples")
    places = find_places(root, examples)
    pages: dict[str, str | bytes] = {}
    notebooks: dict[str, Path] = {}
    for name, uri in places.uris.items():
        path = root / name
        if path.suffix == ".md":
            pages[uri] = adapt(places.move(path.read_text(encoding="utf-8"), name))
        elif uri.startswith("source/"):
            pages[uri] = write_folder(path, name, places) if path.is_dir() else write_file(path, name)
        elif path.suffix == ".ipynb":
            notebooks[uri] = path
            pages |= dict(write_notebook(path, name, places))
    for example in examples:
        folder = example.path.parent.relative_to(root).as_posix()
        links = {path.name: places.find(f"{folder}/{path.name}", INDEX) for path in example.others}
        pages |= dict(write_example(example, links))
    pages[INDEX] = write_index(examples)
    pages[NOTEBOOKS] = write_notebooks(notebooks)
    pages["errors/index.md"] = write_errors(read_titles(root / "docs" / "errors"))
    pages["adr/index.md"] = write_decisions(read_titles(root / "docs" / "adr"))
    return pages


def find_places(root: Path, examples: Sequence[Example]) -> Places:
    """Return where everything stands: what docs/ has, the gallery, and what a page links to elsewhere."""
    uris = {f"docs/{path.relative_to(root / 'docs').as_posix()}": "" for path in _find_files(root / "docs")}
    uris = {name: re.sub(r"\.ipynb$", ".md", name.removeprefix("docs/")) for name in uris} | RENAMED
    for example in examples:
        uri = f"gallery/{example.name}.md"
        for path in (example.path, example.twin):
            uris[path.relative_to(root).as_posix()] = uri
        for path in example.others:
            name = path.relative_to(root).as_posix()
            uris.setdefault(name, f"source/{name}.md")
    for example in examples:  # again, because the spec of one example is another file of the next
        uris[example.path.relative_to(root).as_posix()] = f"gallery/{example.name}.md"
    waiting = [name for name in uris if name.endswith((".md", ".ipynb"))]
    while waiting:
        name = waiting.pop()
        for target in find_targets(_read(root / name), name):
            path = root / target
            if target not in uris and not target.startswith("..") and path.exists():
                uris[target] = f"source/{target}{_find_suffix(path)}"
                waiting += [target] if path.suffix == ".md" else []
    return Places(uris)


def _read(path: Path) -> str:
    return read_prose(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")


def _find_files(folder: Path) -> list[Path]:
    """Return the pages, notebooks and pictures of docs/, without what makes the site."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in (".ipynb", ".md", ".png", ".svg"))
    return [path for path in found if not path.is_relative_to(folder / "site")]


def _find_suffix(path: Path) -> str:
    if path.is_dir():
        return "/index.md"
    return "" if path.suffix == ".md" else ".md"
