"""Derived models: weights that are a value."""

from __future__ import annotations

import ast

from compiler.ir.instructions import Adapt, InstructionBase
from compiler.ir.value import Ref
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Lowered
from runtime.codegen.scope import line_of, operand, read_comment, with_notes


def lower_adapt(instruction: Adapt, scope: EmitScope) -> Lowered:
    """Return ``fast = adapted(net_params, fast_gradient, 0.1)``, with a rate for each parameter where they differ."""
    parameters = syntax.name(scope.names.parameters(instruction.model))
    base = parameters if instruction.base is None else find_weights(instruction.base, scope)
    rate = operand(instruction.rate, scope)
    if instruction.groups:
        chosen = (syntax.name(scope.names.chosen(f"{instruction.model} {match}")) for match, _ in instruction.groups)
        rates = (operand(rate, scope) for _, rate in instruction.groups)
        rate = syntax.call("rates", parameters, rate, *(map(syntax.sequence, zip(chosen, rates, strict=True))))
    made = syntax.call("adapted", base, find_weights(instruction.gradients, scope), rate)
    comment = read_comment(instruction, instruction.model)
    line = line_of(instruction, syntax.assign(scope.names.value(instruction.output), made), comment=comment)
    return Lowered(code=with_notes(instruction, [line]), graph="with" if instruction.graph else "without")


def is_adapted(instruction: InstructionBase) -> bool:
    """Return whether an instruction defines weights: several tensors in one value."""
    return isinstance(instruction, Adapt)


def find_weights(value: Ref, scope: EmitScope) -> ast.expr:
    """Return one tensor for each parameter of a model, as constants where no gradient flows back through them."""
    named = syntax.name(scope.names.value(value.name))
    return syntax.call("detached", named) if value.detach and value.name in scope.flow.carrying else named
