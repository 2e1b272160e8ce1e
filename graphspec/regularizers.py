"""Regularizers: what is added to every loss of a model, once per step."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Strict, model_validator

from graphspec.declaration import Declaration, below, problem
from graphspec.fields import at_least_one
from graphspec.functions import FunctionName
from graphspec.names import is_path
from graphspec.patterns import Pattern
from graphspec.scheduled import OwnFromZero


class RegularizerSpec(Declaration):
    """A term over parameters: `{l1: 0.01}`, `{l2: 0.5}`, both, or `pkg.mod:fn` from a tensor to a number."""

    l1: OwnFromZero | None = None
    """What the sum of the absolute values is multiplied with."""
    l2: OwnFromZero | None = None
    """What the sum of the squares is multiplied with."""
    function: FunctionName | None = None
    """A user's function from a tensor to a number; the numbers of all parameters are added."""
    match: Pattern | None = None
    """Which parameters, by their names; all that are stepped where it is not written."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if is_path(value):
            return {"function": value}
        help = "write `{l1: 0.01}`, `{l2: 0.01}`, both in one mapping, or `pkg.mod:fn`"
        raise problem("GS110", f"no regularizer is named '{value}'", help=help)

    @model_validator(mode="after")
    def _check(self) -> RegularizerSpec:
        has_norms = self.l1 is not None or self.l2 is not None
        if has_norms == (self.function is not None):
            found = "both" if has_norms else "neither"
            help = "write several regularizers as a list"
            raise problem("GS053", f"a regularizer has `l1`, `l2` or a `function`, found {found}", help=help)
        if self.function is not None and self.function.is_builtin:
            raise below(("function",), problem("GS054", "expected the path of a function", help="write `pkg.mod:fn`"))
        return self


def _listed(value: object) -> object:
    """Make one regularizer a list of one."""
    alone: list[object] = [value]
    return alone if isinstance(value, str | dict) else value


Regularizers = Annotated[
    tuple[RegularizerSpec, ...],
    Strict(False),
    at_least_one("regularizer"),
    BeforeValidator(_listed, json_schema_input_type=RegularizerSpec | list[RegularizerSpec]),
]
"""One regularizer, or several that are added."""
