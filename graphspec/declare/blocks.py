"""Blocks: a part of a step that is written once, and the op that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from graphspec.declare.base import Declaration
from graphspec.declare.fields import Args, Names, NamesOrNone, Value
from graphspec.declare.inputs import Inputs, OperandField
from graphspec.declare.ops.base import OpBase, Reference


class BlockSpec(Declaration):
    """A part of a step: ops that read its inputs and each other, and the values that other ops may read."""

    inputs: NamesOrNone = ()
    """The names under which its ops read what a use gives."""
    outputs: Names
    """The values of its ops that others may read: `action` of the use `next` is `next.action`."""
    args: Args = {}
    """Constants that a use may change, with their defaults; `${std}` inside the block is such a constant."""
    ops: dict[str, Value]
    """Its ops. They name their inputs, each other, and models of the document."""
    doc: str = ""
    """A remark, kept for readers."""


def find_use(op: str) -> str:
    """Return the use, not itself in a block, to which an op of a block belongs: the first part of its name.

    >>> find_use("now.inner.action")
    'now'
    """
    return op.partition(".")[0]


class UseInputs(Inputs):
    """The operands of a use, by keyword by the names of the block's inputs: they may be any that a value may have."""

    keyword: dict[str, OperandField] = {}


class UseOp(OpBase):
    """Stand for the ops of a block; its common fields hold for all of them."""

    use: str
    """The block."""
    inputs: UseInputs = UseInputs()
    """What its inputs are: one reference, a list in their order, or a mapping by their names."""
    models: dict[str, str] = {}
    """Other models in place of those that the block names."""
    args: Args = {}
    """Constants in place of the block's defaults."""
    stop: bool = False
    """Whether the outputs are constants for every gradient."""

    @property
    def kind(self) -> Literal["use"]:
        """Return the key of this kind."""
        return "use"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return no value: the outputs of the block are those of its ops."""
        return ()

    def operands(self) -> Iterator[Reference]:
        """Yield the inputs and the models."""
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
        for key, name in self.models.items():
            yield Reference(path=("models", key), name=name, role="called")
