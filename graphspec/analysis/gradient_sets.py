"""Gradient sets: which values hold one gradient for every parameter of some models."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from graphspec.analysis.derived import find_derived
from graphspec.declare.library import ON_GRADIENTS
from graphspec.declare.ops import CallOp, GradientOp, Op, TransformOp

Sets = Mapping[str, tuple[str, ...]]
"""The models that a set covers, in order, by the name of the value."""


def find_gradient_sets(ops: Mapping[str, Op], models: Collection[str]) -> Sets:
    """Return every gradient set with the models it covers: from gradients, transforms, and calls on sets.

    A gradient with respect to a derived model has one gradient for every parameter of the model that it is made of.
    """
    derived = find_derived(ops)
    found: dict[str, tuple[str, ...]] = {}
    pending: dict[str, tuple[str, ...]] = {}
    for name, op in ops.items():
        match op:
            case GradientOp():
                targets, _ = op.split({*models, *derived})
                covered = tuple(dict.fromkeys(derived.get(each, each) for each in targets))
                found |= {op.defines(name)[0]: covered} if covered else {}
            case TransformOp():
                pending[name] = op.inputs
            case CallOp() if op.call.is_builtin and op.call.name("torch") in ON_GRADIENTS:
                pending[name] = tuple(reference for _, reference in op.inputs.references())
            case _:
                pass
    # Sets are followed through the ops that map sets to a set, until none is new.
    while True:
        sources = {name: [each for each in inputs if each in found] for name, inputs in pending.items()}
        ready = {name: found[known[0]] for name, known in sources.items() if known}
        if not ready:
            return found
        found |= ready
        pending = {name: inputs for name, inputs in pending.items() if name not in ready}
