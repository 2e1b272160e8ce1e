"""Results of model calls: which values a call gives, and how they are taken out of what a user's model returns."""

from __future__ import annotations

import ast

from compiler.ir.instructions import Forward
from runtime.codegen import syntax
from runtime.codegen.dialect import Scope


def find_results(instruction: Forward) -> tuple[str, ...]:
    """Return the values the call itself gives, taps excepted."""
    tapped = {value for value, _ in instruction.taps}
    return tuple(value for value in instruction.outputs if value not in tapped)


def name_results(instruction: Forward, call: ast.expr, scope: Scope) -> ast.expr:
    """Return what a call gives for its values: ``result(net(x), "logits")`` where the spec names what a class gives."""
    names = find_results(instruction)
    is_named = instruction.named and scope.program.model(instruction.model).kind == "class"
    if len(names) > 1 or (is_named and names):
        return syntax.call("result" if len(names) == 1 else "results", call, *map(syntax.constant, names))
    return call
