"""Formulas: ops that are written as an expression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from graphspec.declare.fields import Names
from graphspec.declare.ops.base import OpBase, Reference

LOSS = "{}.loss"
"""The value of an expression that is written as the loss of an update or a gradient."""


class FormulaOp(OpBase):
    """Stand for the calls and losses that an expression is made of; its common fields hold for all of them."""

    expr: str
    """The expression, as in Python: `reward + ${discount} * (1 - done) * minimum(q_1, q_2)`."""
    outputs: Names | None = None
    """Names of its results, where it has several; these are the values then."""

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
