"""Patterns: regular expressions that choose parameters by their names."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from graphspec.declaration import problem


def _check(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        help = "write a regular expression of Python, as in `weight$`; a name as it is will do"
        message = f"expected a regular expression, found {pattern!r}: {error.msg} at character {(error.pos or 0) + 1}"
        raise problem("GS044", message, help=help) from error
    return pattern


Pattern = Annotated[str, AfterValidator(_check)]
"""A regular expression of Python, searched in the names of a model's parameters."""
