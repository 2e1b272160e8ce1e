"""Results of model calls: the values of a call, and how they are taken out of the return value of a user's model."""

from __future__ import annotations

import ast

from compiler.ir.instructions import Forward
from runtime.codegen import syntax
from runtime.codegen.dialect import Scope


def find_results(instruction: Forward) -> tuple[str, ...]:
    """Return the values that the call itself returns, taps excepted."""
    tapped = {value for value, _ in instruction.taps}
    return tuple(value for value in instruction.outputs if value not in tapped)


def name_results(instruction: Forward, call: ast.expr, scope: Scope) -> ast.expr:
    """Return the values of a call: ``result(net(x), "logits")`` where the spec names the outputs of a class."""
    names = find_results(instruction)
    is_named = instruction.named and scope.program.model(instruction.model).kind == "class"
    if len(names) > 1 or (is_named and names):
        return syntax.call("result" if len(names) == 1 else "results", call, *map(syntax.constant, names))
    return call
