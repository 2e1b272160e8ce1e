"""Crossing: a run that goes on under another framework, and what changes with it."""

from __future__ import annotations

from collections.abc import Iterator

from graphspec.graph import GraphSpec
from graphspec.layers import Layer
from graphspec.models import ModelSpec
from graphspec.ops import RandomOp
from runtime.runs.changes import Change


def compare_backends(old: str, new: str | None, spec: GraphSpec) -> Iterator[Change]:
    """Yield the change of framework of a run that goes on, where there is one; None is the framework it had.

    Nothing that is saved is of one framework alone where models, optimizers and metrics are built in. Random numbers go
    on as they were where the spec says `rng: portable`; those of `rng: native` are each framework's own, which is told.
    """
    if new is None or new == old:
        return
    others = " (its own random numbers from here on: `rng: native`)" if _draws(spec) else ""
    yield Change(path="backend", before=old, after=f"{new}{others}", kind="hyper")


def _draws(spec: GraphSpec) -> bool:
    """Return whether a step may draw random numbers that are the framework's own."""
    drawn = any(isinstance(op, RandomOp) for op in spec.ops.values())
    return spec.rng == "native" and (drawn or any(map(_may_draw, spec.models.values())))


def _may_draw(model: ModelSpec) -> bool:
    """Return whether a model may draw: it has dropout, or nobody has looked at its class."""
    return model.class_ is not None or any(map(_drops, model.layers or ()))


def _drops(layer: Layer) -> bool:
    """Return whether a layer is, or has inside, dropout."""
    return layer.kind == "dropout" or any(map(_drops, layer.layers))
