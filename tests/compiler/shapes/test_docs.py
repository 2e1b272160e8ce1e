"""The tables of the documentation against the tables of the language."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphspec.declare.layers import LAYERS
from graphspec.declare.library import CALLS, LOSSES, METRICS, RANDOMS, TRANSFORMS

DOCS = Path(__file__).parents[3] / "docs"
FAMILIES = {"loss": LOSSES, "call": CALLS, "metric": METRICS, "transform": TRANSFORMS, "distribution": RANDOMS}


def read_tables(name):
    """Return every table of a page: the head of its first column -> rows by name, cells by the head of their column."""
    tables, head = {}, None
    for line in (DOCS / name).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            head = None
        elif head is None:
            head = cells
            tables[head[0]] = {}
        elif set(cells[0]) != {"-"}:
            assert len(cells) == len(head), line
            tables[head[0]][cells[0].strip("`")] = dict(zip(head, cells, strict=True))
    return tables


def write_options(options):
    """Return options as the tables show them."""
    return ", ".join(f"`{option.name}`" if option.required else f"`{write_default(option)}`" for option in options)


def write_default(option):
    """Return an option with its default; a window's step without one is the size of the window."""
    default = "kernel" if option.name == "stride" and option.default is None else str(option.default)
    words = {"None": "none", "True": "true", "False": "false"}
    return f"{option.name} = {words.get(default, default)}"


def test_every_layer_is_documented_with_its_options_and_defaults():
    rows = read_tables("layers.md")["layer"]
    assert {name: row["options"] for name, row in rows.items()} == {
        name: write_options(options) for name, options in LAYERS.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_every_function_is_documented_with_its_operands_and_options(family):
    rows = read_tables("functions.md")[family]
    assert list(rows) == list(FAMILIES[family])
    for name, signature in FAMILIES[family].items():
        operands = ", ".join(f"`{operand}`" for operand in signature.operands) + (", ..." if signature.repeats else "")
        assert rows[name].get("inputs", "") == operands
        assert rows[name]["options"] == write_options(signature.options)


@pytest.mark.parametrize("page", ["layers.md", "functions.md"])
def test_every_row_says_what_comes_out(page):
    for rows in read_tables(page).values():
        for row in rows.values():
            result = next(text for head, text in row.items() if re.search("result|formula", head))
            assert len(result) > 1
