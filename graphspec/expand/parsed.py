"""Ops of a document that are read one by one, before the whole document is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ValidationError

from graphspec.declare.blocks import CONTAINERS, ChooseOp, RepeatOp, SometimesOp, UseOp
from graphspec.declare.graph import Ops, find_kinds
from graphspec.declare.ops import KINDS, CopyOp, EmaOp, UpdateOp
from graphspec.declare.ops.base import OpBase
from graphspec.expand.copies import Use, find_holder, find_outer
from graphspec.read.source import Plain


class Uses(BaseModel, defer_build=True):
    """A document with uses of blocks."""

    ops: dict[str, UseOp]


class WrittenOps(BaseModel, defer_build=True):
    """A document with ops of any other kind."""

    ops: Ops


class _Repeats(BaseModel, defer_build=True):
    ops: dict[str, RepeatOp]


class _Choices(BaseModel, defer_build=True):
    ops: dict[str, ChooseOp]


class _Chances(BaseModel, defer_build=True):
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


def find_following(writes: Mapping[str, Use], ops: Mapping[str, Plain]) -> Iterator[tuple[str, str]]:
    """Yield the averages and copies, each with every op around it in which an update steps its source, at any depth."""
    parsed = {name: parse_op(ops[name]) for name in writes}
    updated = {
        found
        for name, op in parsed.items()
        if isinstance(op, UpdateOp)
        for model in op.update
        for found in _name_around(writes[name], model, ops)
    }
    for name, op in parsed.items():
        if isinstance(op, EmaOp | CopyOp):
            source = op.ema if isinstance(op, EmaOp) else op.copy_
            yield from ((name, found[0]) for found in _name_around(writes[name], source, ops) if found in updated)


def _name_around(use: Use, model: str, ops: Mapping[str, Plain]) -> Iterator[tuple[str, str]]:
    """Yield the ops of a use and of those around it, from the inside out, each with what it calls a model."""
    for each in find_outer(use):
        yield each.op, model
        op = parse_op(ops[each.op])
        model = op.models.get(model, model) if isinstance(op, UseOp) else model
