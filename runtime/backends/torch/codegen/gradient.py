"""Lowering of gradients."""

from __future__ import annotations

import ast

from compiler.ir.instructions import Gradient
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.lower.gradient import find_seeds, find_targets, receive, recomputing
from runtime.codegen.lower.messages import sending
from runtime.codegen.lower.overflow import unscaled
from runtime.codegen.lower.transform import frozen_places
from runtime.codegen.scope import line_of, with_notes
from runtime.codegen.text import Line


def lower_gradient(instruction: Gradient, scope: EmitScope, retained: ast.expr | None = None) -> Lowered:
    """Return ``torch.autograd.grad`` with explicit targets; ``retained``: where it keeps its graph besides."""
    loss = syntax.name(scope.names.value(instruction.loss))
    seeds = find_seeds(instruction, scope)
    options: dict[str, ast.expr] = {} if seeds is None else {"grad_outputs": seeds}
    if instruction.create_graph:  # which also retains it
        options["create_graph"] = syntax.constant(True)
    elif instruction.retain_graph:
        options["retain_graph"] = syntax.constant(True)
    elif retained is not None:
        options["retain_graph"] = retained
    if instruction.unconnected == "zero":
        options["zero"] = syntax.constant(True)
    targets = find_targets(instruction, scope)
    path = "torch.autograd.grad" if instruction.unconnected == "error" else "reached_gradients"
    frozen = frozen_places(instruction, scope)
    gradients: ast.expr = (
        syntax.call("unfrozen_gradients", syntax.dotted(path), loss, targets, *frozen, **options)
        if frozen
        else syntax.call(path, loss, targets, **options)
    )
    gradients = syntax.call("rows_of", gradients) if instruction.rows else gradients
    gradients = unscaled(gradients, instruction) if instruction.scaled else gradients
    (line,) = with_notes(instruction, [line_of(instruction, receive(instruction, gradients, scope))])
    kept = (each.model for each in instruction.recomputed if each.kept)
    switches: list[Line] = []
    for each in instruction.recomputed:  # models whose forwards run again are in the mode in which they first ran
        train = scope.switches.get(f"{instruction.key} {each.model}")
        if train is not None:
            switch = syntax.method(syntax.name(scope.names.model(each.model)), "train" if train else "eval")
            switches.append(line_of(instruction, syntax.perform(switch)))
    code, parallel = recomputing(instruction, line, kept, scope), scope.program.parallel
    code = code if parallel is None else sending(instruction, code, parallel, scope)
    return Lowered(code=(*switches, *code))
