"""Patterns: regular expressions that choose parameters by their names."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from graphspec.declaration import problem
from graphspec.matching import UnmatchableError, read_pattern
from graphspec.words import quote


def _check(pattern: str) -> str:
    try:
        read_pattern(pattern)
    except UnmatchableError as error:
        help = "write a shorter one, or several groups: lists of names, `.*`, and what is not ahead, as in `^(?!head)`"
        raise problem("GS060", f"the pattern {quote(pattern)} is not taken: {error}", help=help) from error
    except re.error as error:
        help = "write a regular expression of Python, as in `weight$`; a name as it is will do"
        message = (
            f"expected a regular expression, found {quote(pattern)}: {error.msg} at character {(error.pos or 0) + 1}"
        )
        raise problem("GS044", message, help=help) from error
    return pattern


Pattern = Annotated[str, AfterValidator(_check)]
"""A regular expression of Python, searched in the names of a model's parameters."""
