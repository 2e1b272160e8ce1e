"""Shards: how weights are divided among processes, and where a step reads them in whole."""

from __future__ import annotations

import ast

from compiler.ir.instructions import Apply, Assign, Blend, Emit, Forward, Instruction
from compiler.ir.program import ModelDecl, Program
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope
from runtime.codegen.resources import Names, find_instructions
from runtime.codegen.scope import line_of
from runtime.codegen.text import Code

SHARDS = "shards"
"""The global variable of the register of shards."""


def divide(model: ModelDecl, made: ast.expr, program: Program) -> ast.expr:
    """Return ``shards.divide(MODELS["net"], by_layer=True)``: a model whose parameters are divided."""
    calls = (each for each in find_instructions(program) if isinstance(each, Forward) and each.model == model.name)
    methods = dict.fromkeys(each.method for each in calls if each.method is not None)
    said = {"by_layer": model.kind == "layers", "kept": model.name in find_kept(program)}
    options = {name: syntax.constant(True) for name, is_said in said.items() if is_said}
    return syntax.call(f"{SHARDS}.divide", made, *map(syntax.constant, methods), **options)


def whole(listed: ast.expr) -> ast.expr:
    """Return ``shards.whole(net_params)``: what a forward reads of parameters, for gradients and their shapes."""
    return syntax.call(f"{SHARDS}.whole", listed)


def recorded(listed: ast.expr) -> ast.expr:
    """Return ``shards.recorded(net_params)``: what says of parameters whether a gradient is recorded."""
    return syntax.call(f"{SHARDS}.recorded", listed)


def find_kept(program: Program) -> frozenset[str]:
    """Return the models that stay gathered after a forward."""
    return frozenset(each.model for each in find_instructions(program) if isinstance(each, Forward) and each.kept)


def release(instruction: Instruction, code: tuple[Code, ...], scope: EmitScope) -> tuple[Code, ...]:
    """Return the code of an instruction with lines ``shards.release(net)`` for what was gathered of models.

    After a write it is of the version before; at the end of a step nothing reads it any more.
    """
    match instruction:
        case Apply():
            models = [model for part in instruction.parts for model in part.models]
        case Blend() | Assign():
            models = [instruction.target]
        case Emit():
            kept = find_kept(scope.program)
            calls = (each for each in scope.function.instructions if isinstance(each, Forward))
            models = [each.model for each in calls if each.model in kept]
        case _:
            return code
    lines = (
        line_of(instruction, syntax.perform(syntax.call(f"{SHARDS}.release", syntax.name(scope.names.model(model)))))
        for model in dict.fromkeys(models)
    )
    return (*lines, *code) if isinstance(instruction, Emit) else (*code, *lines)


def own_parameters(model: ModelDecl, names: Names, *, trained: bool) -> ast.expr:
    """Return ``shards.own(net)``: the shards of a model's parameters."""
    options = {"trained": syntax.constant(True)} if trained else {}
    return syntax.call(f"{SHARDS}.own", syntax.name(names.model(model.name)), **options)


def named_parameters(model: ModelDecl, names: Names) -> ast.expr:
    """Return ``shards.named(net)``: the same by name."""
    return syntax.call(f"{SHARDS}.named", syntax.name(names.model(model.name)))
