"""Pages that show a file, or the files of a folder, outside docs/."""

from __future__ import annotations

import ast
import html
import re
from pathlib import Path

from docs.site.fences import LANGUAGES, fence
from docs.site.gallery import EDITOR
from docs.site.places import Places
from runtime.cli.init import find_title

HIDDEN = "---\nsearch: {exclude: true}\n---\n"
"""Sources would hide the pages about them in the results of a search."""


def write_file(path: Path, name: str) -> str:
    """Return the page of a file: its text, coloured."""
    text = path.read_text(encoding="utf-8")
    return f"{HIDDEN}# {path.name}\n\n{fence(text, LANGUAGES.get(path.suffix, 'text'), name)}"


def write_folder(path: Path, name: str, places: Places) -> str:
    """Return the page of a folder: its files, and what the modules of Python say they are."""
    rows: list[str] = []
    for each in sorted(path.rglob("*")):
        if each.is_file() and "__pycache__" not in each.parts:
            inside = each.relative_to(path).as_posix()
            whole = f"{name}/{inside}"
            shown = f"[`{inside}`]({places.find(whole, places.uris[name])})" if whole in places.uris else f"`{inside}`"
            rows.append(f"| {shown} | {_describe(each)} |\n")
    return f"{HIDDEN}# {name}\n\n| file | what it is |\n|---|---|\n{''.join(rows)}"


def _describe(path: Path) -> str:
    """Return the first line of the docstring of a module of Python, or of the comment of a spec, for a table."""
    if path.suffix not in (".py", ".yaml"):
        return ""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        says = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    else:
        says = find_title(EDITOR.sub("", text))
    return re.sub(r"[|*_\[\]`]", lambda found: f"&#{ord(found[0])};", html.escape(says, quote=False))
