"""Gradient sets: which values hold one gradient for every parameter of some models."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from graphspec.declare.library import ON_GRADIENTS
from graphspec.declare.ops import CallOp, GradientOp, Op, TransformOp

Sets = Mapping[str, tuple[str, ...]]
"""The models that a set covers, in order, by the name of the value."""


def find_gradient_sets(ops: Mapping[str, Op], models: Container[str]) -> Sets:
    """Return every gradient set with the models it covers: from gradients, transforms, and calls on sets."""
    found: dict[str, tuple[str, ...]] = {}
    pending: dict[str, tuple[str, ...]] = {}
    for name, op in ops.items():
        match op:
            case GradientOp():
                targets, _ = op.split(models)
                found |= {op.defines(name)[0]: targets} if targets else {}
            case TransformOp():
                pending[name] = op.inputs
            case CallOp() if op.call.is_builtin and op.call.name("torch") in ON_GRADIENTS:
                pending[name] = tuple(reference for _, reference in op.inputs.references())
            case _:
                pass
    return _spread(found, pending)


def _spread(found: dict[str, tuple[str, ...]], pending: Mapping[str, Iterable[str]]) -> Sets:
    """Follow sets through the ops that map sets to a set, until none is new."""
    rest = dict(pending)
    while True:
        ready = {name: first for name, inputs in rest.items() for first in [_first(inputs, found)] if first is not None}
        if not ready:
            return found
        found |= {name: found[first] for name, first in ready.items()}
        rest = {name: inputs for name, inputs in rest.items() if name not in ready}


def _first(inputs: Iterable[str], found: Container[str]) -> str | None:
    return next((name for name in inputs if name in found), None)
