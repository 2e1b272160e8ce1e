"""Lowering of gradients."""

from __future__ import annotations

import ast

from compiler.ir.instructions import Gradient
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.flow import find_reaching
from runtime.codegen.lower.gradient import find_seeds, find_targets, receive, recomputing
from runtime.codegen.lower.overflow import unscaled
from runtime.codegen.lower.transform import frozen_places
from runtime.codegen.scope import line_of, with_notes


def lower_gradient(instruction: Gradient, scope: EmitScope) -> Lowered:
    """Return ``gradients(tape, loss, targets)``."""
    tape, loss = (syntax.name(each) for each in (scope.tapes[id(instruction)], scope.names.value(instruction.loss)))
    frozen = frozen_places(instruction, scope)
    path = "row_gradients" if instruction.rows else "unfrozen_gradients" if frozen else "gradients"
    seeds = find_seeds(instruction, scope)
    options: dict[str, ast.expr] = {} if seeds is None else {"seeds": seeds}
    if instruction.unconnected != "error":
        options["unconnected"] = syntax.constant(instruction.unconnected)
    targets = (
        find_targets(instruction, scope)
        if instruction.models
        else syntax.sequence(syntax.name(scope.names.value(value)) for value in instruction.values)
    )
    taken: ast.expr = syntax.call(path, tape, loss, targets, *frozen, **options)
    # A tape runs back through all that it recorded: with several gradients on it, that is more than the path to the
    # targets of this one.
    reaching = find_reaching(instruction.loss, scope.makers) if scope.rerun else ()
    positioned = (scope.rerun[each] for each in reaching if each in scope.rerun)
    again = [each for _, each in sorted(positioned, key=lambda pair: pair[0])]
    taken = syntax.call("together", taken) if again else taken
    taken = unscaled(taken, instruction) if instruction.scaled else taken
    statement = receive(instruction, taken, scope)
    line = line_of(instruction, statement)
    # A note on why the graph is kept is left out: where the tape is opened, it shows that several gradients use it.
    (line,) = with_notes(instruction, [line]) if instruction.create_graph else (line,)
    kept = (each.model for each in again for at in each.writes if at.cell.kind == "buffers")
    return Lowered(code=recomputing(instruction, line, kept, scope))
