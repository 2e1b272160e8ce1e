"""A document in the canonical layout, as its author wrote it and with all comments: what ``stepgraph fmt`` does."""

from __future__ import annotations

import json
from typing import cast

from graphspec.read.source import read_document
from graphspec.write.key_order import sort_document
from graphspec.write.layout import Tree, lay_out
from graphspec.write.source_tree import read_tree


def format_document(text: str, name: str) -> str:
    r"""Return a YAML or JSON document in the canonical layout; formatting that again changes nothing.

    Keys of the language are in its order; ops, models, inputs, layers and arguments stay in that of the document. The
    name distinguishes JSON from YAML as for :func:`read_document`, and messages have it. Raises SpecError where the
    text is no document.

    >>> from graphspec.write.format import format_document
    >>> print(format_document("name: 'net'   # mine\ngraphspec: 1\nrun: { steps: 1000 }", "net.yaml"), end="")
    graphspec: 1
    name: net  # mine
    run: {steps: 1000}
    """
    document = read_document(text, name=name)
    if not isinstance(document.data, dict) or not document.data:
        return text
    if name.lower().endswith(".json"):
        return json.dumps(sort_document(document.data), indent=2, ensure_ascii=False) + "\n"
    source = read_tree(document.text)
    tree = cast("dict[str, Tree]", source.root.to_tree())
    if not source.has_anchors:  # an alias stays after its anchor
        tree = sort_document(tree)
    head = "".join(f"{line}\n" for line in source.head)
    tail = "".join(f"{line}\n" for line in source.root.below)
    laid_out = lay_out(tree, dict(source.root.list_notes(tree)), [*source.root.list_bracketed()])
    formatted = f"{head}{laid_out}{tail}"
    again = read_document(formatted, name=name).data
    if _describe(document.data) != _describe(again):
        raise AssertionError(f"the layout would change what {name} says")
    return formatted


def _describe(value: object) -> object:
    """Return a value in a form in which the order of keys does not count, and 1 differs from 1.0 and from true."""
    match value:
        case dict():
            return {key: _describe(item) for key, item in cast("dict[str, object]", value).items()}
        case list():
            return [_describe(item) for item in cast("list[object]", value)]
        case _:
            return repr(value)
