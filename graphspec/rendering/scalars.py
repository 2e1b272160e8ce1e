"""Scalars as YAML spells them: plain where every reader takes them for what they are, else between quotes."""

from __future__ import annotations

import json
import math
import re

from graphspec.rendering.spelling import Word

_PLAIN = re.compile(r"(?:\.{0,2}/)?[A-Za-z_][A-Za-z0-9_./%+-]*(?::[A-Za-z0-9_./%+-]+)*(?: [A-Za-z0-9_./%+-]+)*")
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"))
"""What some version of YAML, or some reader, takes for more than a text."""

# libyaml refuses some of these as they are, and the others change the direction of a text or are not seen; JSON's
# escapes do not cover them.
_UNPRINTABLE = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]"
)


def spell_scalar(value: None | bool | int | float | str) -> str:
    """Return a scalar that YAML 1.2 reads back as the same value; floats have the fewest digits that do so."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if not math.isfinite(value):
            return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
        case int() | float():
            return repr(value)
        case str():
            return str(value) if isinstance(value, Word) or is_plain(value) else quote(value)


def is_plain(text: str) -> bool:
    """Return whether a text needs no quotes, in a flow collection either."""
    return _PLAIN.fullmatch(text) is not None and text.casefold() not in _WORDS


def quote(text: str) -> str:
    """Return a text between double quotes."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(text, ensure_ascii=False))
