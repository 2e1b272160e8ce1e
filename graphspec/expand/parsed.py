"""Ops of a document that are read one by one, before the whole document is."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from graphspec.declare.blocks import CONTAINERS, ChooseOp, RepeatOp, SometimesOp, UseOp
from graphspec.declare.graph import Ops, find_kinds
from graphspec.declare.ops import KINDS
from graphspec.declare.ops.base import OpBase
from graphspec.expand.copies import find_holder
from graphspec.read.source import Plain


class Uses(BaseModel):
    """A document with uses of blocks."""

    ops: dict[str, UseOp]


class WrittenOps(BaseModel):
    """A document with ops of any other kind."""

    ops: Ops


class _Repeats(BaseModel):
    ops: dict[str, RepeatOp]


class _Choices(BaseModel):
    ops: dict[str, ChooseOp]


class _Chances(BaseModel):
    ops: dict[str, SometimesOp]


PARTS: Mapping[str, type[BaseModel]] = {"repeat": _Repeats, "choose": _Choices, "sometimes": _Chances}
"""What documents with an op of each kind that holds others are read by."""


def parse_op(data: Plain) -> OpBase | None:
    """Return an op; None for what is none, which is reported where all ops are read."""
    if not isinstance(data, dict):
        return None
    kinds = find_kinds(data)
    kind = CONTAINERS.get(find_holder(data)) if not kinds else KINDS.get(kinds[0]) if len(kinds) == 1 else None
    try:
        return None if kind is None else kind.model_validate(data)
    except ValidationError:
        return None
