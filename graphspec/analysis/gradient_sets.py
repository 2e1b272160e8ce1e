"""Gradient sets: which values hold one gradient for every parameter of some models."""

from __future__ import annotations

from collections.abc import Mapping

from graphspec.analysis.derived import find_derived
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.library import ON_GRADIENTS
from graphspec.declare.ops import CallOp, GradientOp, TransformOp

Sets = Mapping[str, tuple[str, ...]]
"""The models that a set covers, in order, by the name of the value."""


@once_per_spec
def find_gradient_sets(spec: GraphSpec) -> Sets:
    """Return every gradient set with the models it covers: from gradients, transforms, and calls on sets.

    A gradient with respect to a derived model has one gradient for every parameter of the model that it is made of.
    """
    derived = find_derived(spec)
    written = {*spec.models, *derived}
    found: dict[str, tuple[str, ...]] = {}
    pending: dict[str, tuple[str, ...]] = {}
    for name, op in spec.ops.items():
        match op:
            case GradientOp():
                targets, _ = op.split(written)
                covered = tuple(dict.fromkeys(derived.get(each, each) for each in targets))
                found |= {op.defines(name)[0]: covered} if covered else {}
            case TransformOp():
                pending[name] = op.inputs
            case CallOp() if op.call.is_builtin and op.call.name("torch") in ON_GRADIENTS:
                pending[name] = tuple(reference for _, reference in op.inputs.references())
            case _:
                pass
    users: dict[str, list[str]] = {}
    for name, inputs in pending.items():
        for each in inputs:
            users.setdefault(each, []).append(name)
    place = {name: index for index, name in enumerate(pending)}
    # Sets are followed through the ops that map sets to a set, round by round, until none is new.
    fresh = list(found)
    while fresh:
        reached = {name for each in fresh for name in users.get(each, ()) if name not in found}
        fresh = sorted(reached, key=place.__getitem__)
        found |= {name: next(found[each] for each in pending[name] if each in found) for name in fresh}
    return found
