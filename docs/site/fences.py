"""Code on generated pages: fenced blocks that no content can end, escaped prose, and the one flow chart."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from itertools import pairwise

LANGUAGES: Mapping[str, str] = {".json": "json", ".md": "markdown", ".py": "python", ".toml": "toml", ".yaml": "yaml"}
"""The language of a file by its suffix; others are text."""
LONGEST = 100_000
"""Longer texts are shown without colours: they are data, and would take seconds to colour."""

_NODE = r"(\w+)(?:\[\"?(.+?)\"?\])?"
_EDGE = re.compile(rf"^\s*{_NODE} -->\|(.+?)\| {_NODE}\s*$")


def fence(text: str, language: str = "text", title: str = "") -> str:
    """Return a text as a fenced block; its fence is longer than any in the text."""
    ticks = "`" * (1 + max(2, *map(len, re.findall(r"`+", text)), 0))
    name = f' title="{html.escape(title)}"' if title else ""
    return f"{ticks}{language if len(text) < LONGEST else 'text'}{name}\n{text.rstrip()}\n{ticks}\n"


def write_prose(text: str) -> str:
    """Return a text of a spec as HTML: all of it escaped, and what is between backticks as code."""
    return re.sub(r"`(.+?)`", r"<code>\1</code>", html.escape(text, quote=False))


def draw_flow(source: str, *_: object, **__: object) -> str:
    """Return a Mermaid flow chart that is a chain as a list of its nodes, with the words of the edges between them.

    Drawing it as Mermaid does needs a script of three megabytes. Raises ValueError for any other chart.
    """
    first, *lines = source.strip().splitlines()
    found = [match.groups() for match in map(_EDGE.match, lines) if match is not None]
    if first != "flowchart LR" or len(found) < len(lines) or any(a[3] != b[0] for a, b in pairwise(found)):
        raise ValueError(f"the site draws flow charts that are one chain:\n{source}")
    labels = {name: label for edge in found for name, label in (edge[:2], edge[3:]) if label}
    items = [f"<li>{_break(labels[found[0][0]])}</li>"]
    items += (f'<li class="by">{_break(words)}</li><li>{_break(labels[name])}</li>' for _, _, words, name, _ in found)
    return f'<ol class="flow">{"".join(items)}</ol>'


def _break(label: str) -> str:
    return "<br>".join(html.escape(line) for line in label.split("\\n"))
