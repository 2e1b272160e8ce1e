"""Formulas: ops that are written as an expression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, cast

from pydantic import model_validator

from graphspec.declare.base import below, problem
from graphspec.declare.fields import Names
from graphspec.declare.ops.base import OpBase, Reference

LOSS = "{}.loss"
"""The value of an expression that is written where an op names what it differentiates."""
DIFFERENTIATED: Mapping[str, str] = {"update": "loss", "gradient": "gradient", "adapt": "loss"}
"""The field that names what an op differentiates, by kind; an expression may stand in it."""


_REMEDIES: Mapping[str, str] = {
    "inputs": "remove it: an expression names what it reads",
    "args": "write options in the call, as in `mean(x, axis=1)`",
    "weight": "write it as a factor, as in `2.0 * mse(x, y)`; a lazy term is a `loss` of its own, with a `weight`",
    "reduction": 'write it in the call, as in `mse(x, y, reduction="sum")`',
    "lazy": 'write it in the call, as in `mse(x, y, lazy="none")`',
    "stop": "write `stop(...)` around the expression",
}
"""The fields of calls and losses that an expression has in its text."""

IN_CALLS = ("reduction", "lazy")
"""Fields of a loss that an expression writes as options of the call."""


class FormulaOp(OpBase):
    """Stand for the calls and losses that an expression is made of; its common fields hold for all of them."""

    expr: str
    """The expression, as in Python: `reward + ${discount} * (1 - done) * minimum(q_1, q_2)`."""
    outputs: Names | None = None
    """Names of its results, where it has several; these are the values then."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_fields(cls, value: object) -> object:
        written = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        for key, help in _REMEDIES.items():
            if key in written:
                message = f"an expression has no key '{key}'"
                raise below((key,), problem("GS040", message, help=help, at="key"))
        return cast("object", value)

    @property
    def kind(self) -> Literal["expr"]:
        """Return the key of this kind."""
        return "expr"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return the outputs, or the op's own name where none are written."""
        return self.outputs or (name,)

    def operands(self) -> Iterator[Reference]:
        """Yield nothing: the names in it are those of the ops that it is made of."""
        yield from ()
