"""Names: the pattern every declared name follows, and the words no name may be."""

from __future__ import annotations

import keyword
import re

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
KEYWORDS = frozenset((*keyword.kwlist, "__debug__"))
"""Words of Python: a name becomes a variable of the generated source, and nothing may be assigned to these."""

PATH_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
"""``pkg.mod:Name``: how a user's class or function is named."""

_NAME = re.compile(NAME_PATTERN)
_PATH = re.compile(PATH_PATTERN)


def is_name(text: str) -> bool:
    """Return whether a text may name an input, a model, an op or a value."""
    return _NAME.fullmatch(text) is not None and text not in KEYWORDS


def is_path(text: str) -> bool:
    """Return whether a text is an import path of the form ``pkg.mod:Name``."""
    return _PATH.fullmatch(text) is not None and KEYWORDS.isdisjoint(re.split("[.:]", text))
