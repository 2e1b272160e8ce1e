"""Elements of XML and HTML, with everything escaped that is written into them."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

from graphspec.diagnostics import escape as spell_out

PALETTE = {
    "paper": ("#ffffff", "#0d1117"),
    "panel": ("#f6f8fa", "#151b23"),
    "chosen": ("#e2eefc", "#1c2d41"),
    "gone": ("#fde9e7", "#3c1d1f"),
    "fresh": ("#e2f4e6", "#14321e"),
    "ink": ("#1c2128", "#e6edf3"),
    "muted": ("#57606a", "#9da7b3"),
    "line": ("#d4dae1", "#2f3742"),
    "track": ("#bcc5cf", "#454e5a"),
    "wait": ("#b34700", "#f0883e"),
    "slope": ("#a8206b", "#f57ab6"),
    "v0": ("#66717e", "#8d97a3"),
    "v1": ("#0a63c9", "#58a6ff"),
    "v2": ("#7c44c9", "#bf93ff"),
    "v3": ("#0b7268", "#43bfa9"),
}
"""The colours of the picture and the page, light and dark; v0 to v3 are those of versions."""

VOID = frozenset({"input"})
"""The elements that have no end."""


def tag(name: str, /, *content: str, **attributes: str | float | None) -> str:
    """Return an element around contents that are escaped already; its attributes are escaped here, None is left out.

    >>> tag("text", escape_text("a < b"), x=1, class_="name", aria_label='"quoted"')
    '<text x="1" class="name" aria-label="&quot;quoted&quot;">a &lt; b</text>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape_text(value) if isinstance(value, str) else f"{value:g}"}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>" if name in VOID else f"<{name}{shown}>{''.join(content)}</{name}>"


def escape_text(text: str) -> str:
    """Return a text as it can stand in an element or a quoted attribute; control characters are spelled out."""
    return escape("\n".join(map(spell_out, text.split("\n"))))


def read_asset(file: str, /, **texts: str) -> str:
    """Return a file of this package with its `$names` replaced."""
    text = files(__package__ or "").joinpath(file).read_text(encoding="utf-8")
    return Template(text).substitute(texts) if texts else text


def write_palette(which: int) -> dict[str, str]:
    """Return the colours by name: 0 for light, 1 for dark."""
    return {name: pair[which] for name, pair in PALETTE.items()}
