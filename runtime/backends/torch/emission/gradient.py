"""Lowering of gradients."""

from __future__ import annotations

import ast

from compiler.instructions import Gradient
from runtime.emission import syntax
from runtime.emission.gaps import resting_places
from runtime.emission.gradients import find_targets, receive
from runtime.emission.scope import Lowered, Scope, line_of, operand, with_notes
from runtime.emission.verdicts import scaled_seeds, unscaled


def lower_gradient(instruction: Gradient, scope: Scope) -> Lowered:
    """Return ``torch.autograd.grad`` with explicit targets."""
    loss = syntax.name(scope.names.value(instruction.loss))
    targets, options = find_targets(instruction, scope), _options(instruction, scope)
    path = "torch.autograd.grad" if instruction.unconnected == "error" else "reached_gradients"
    resting = resting_places(instruction, scope)
    gradients: ast.expr = (
        syntax.call("thawed_gradients", syntax.dotted(path), loss, targets, *resting, **options)
        if resting
        else syntax.call(path, loss, targets, **options)
    )
    gradients = unscaled(gradients) if instruction.scaled else gradients
    statement = receive(instruction, gradients, scope)
    return Lowered(code=with_notes(instruction, [line_of(instruction, statement)]))


def _options(instruction: Gradient, scope: Scope) -> dict[str, ast.expr]:
    """Return the keyword arguments that differ from torch's defaults."""
    options: dict[str, ast.expr] = {}
    if instruction.grad_outputs:
        seeds = [operand(each, scope) for each in instruction.grad_outputs]
        options["grad_outputs"] = seeds[0] if len(seeds) == 1 else syntax.sequence(seeds)
    if instruction.scaled:
        loss = syntax.name(scope.names.value(instruction.loss))
        options["grad_outputs"] = scaled_seeds(loss, options.get("grad_outputs"))
    if instruction.retain_graph and not instruction.create_graph:
        options["retain_graph"] = syntax.constant(True)
    if instruction.create_graph:
        options["create_graph"] = syntax.constant(True)
    if instruction.unconnected == "zero":
        options["zero"] = syntax.constant(True)
    return options
