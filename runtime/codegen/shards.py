"""Shards: how weights are divided among processes, and where a step reads them in whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from compiler.ir.instructions import Apply, Assign, Blend, Emit, Forward, InstructionBase
from compiler.ir.program import ModelDecl, Program
from runtime.codegen import syntax
from runtime.codegen.dialect import EmitScope, Global
from runtime.codegen.resources import Names, find_instructions
from runtime.codegen.scope import line_of
from runtime.codegen.text import Line

SHARDS = "shards"
"""The global variable of the register of shards."""


def shard_globals(program: Program) -> Iterator[Global]:
    """Yield the register of shards, where there are some."""
    if program.is_sharded:
        yield Global(name=SHARDS, value=syntax.call("Shards", syntax.name("replicas")))


def divide(model: ModelDecl, made: ast.expr, program: Program) -> ast.expr:
    """Return ``shards.divide(MODELS["net"], by_layer=True)``: a model whose parameters are divided."""
    if not program.is_sharded:
        return made
    calls = (each for each in find_instructions(program) if isinstance(each, Forward) and each.model == model.name)
    methods = dict.fromkeys(each.method for each in calls if each.method is not None)
    said = {"by_layer": model.kind == "layers", "kept": model.name in find_kept(program)}
    options = {name: syntax.constant(True) for name, is_said in said.items() if is_said}
    return syntax.call(f"{SHARDS}.divide", made, *map(syntax.constant, methods), **options)


def whole(listed: ast.expr, program: Program) -> ast.expr:
    """Return ``shards.whole(net_params)``: what a forward reads of parameters, for gradients and their shapes."""
    return syntax.call(f"{SHARDS}.whole", listed) if program.is_sharded else listed


def recorded(listed: ast.expr, program: Program) -> ast.expr:
    """Return ``shards.recorded(net_params)``: what says of parameters whether a gradient is recorded."""
    return syntax.call(f"{SHARDS}.recorded", listed) if program.is_sharded else listed


def find_kept(program: Program) -> frozenset[str]:
    """Return the models that stay gathered after a forward."""
    return frozenset(each.model for each in find_instructions(program) if isinstance(each, Forward) and each.kept)


def release_written(instruction: Apply | Blend | Assign, scope: EmitScope) -> Iterator[Line]:
    """Yield a line for each model that was written: what was gathered of it is of the version before."""
    models = (
        tuple(model for part in instruction.parts for model in part.models)
        if isinstance(instruction, Apply)
        else (instruction.target,)
    )
    yield from _release(instruction, dict.fromkeys(models), scope)


def release_kept(instruction: Emit, scope: EmitScope) -> Iterator[Line]:
    """Yield the lines at the end of a step that let go of what stayed gathered in it."""
    calls = (each for each in scope.function.instructions if isinstance(each, Forward))
    kept = find_kept(scope.program) if scope.program.is_sharded else ()
    yield from _release(instruction, dict.fromkeys(each.model for each in calls if each.model in kept), scope)


def _release(instruction: InstructionBase, models: dict[str, None], scope: EmitScope) -> Iterator[Line]:
    """Yield ``shards.release(net)`` for models, where they have shards."""
    for model in models if scope.program.is_sharded else ():
        released = syntax.call(f"{SHARDS}.release", syntax.name(scope.names.model(model)))
        yield line_of(instruction, syntax.perform(released))


def own_parameters(model: ModelDecl, names: Names, *, trained: bool) -> ast.expr:
    """Return ``shards.own(net)``: the shards of a model's parameters."""
    options = {"trained": syntax.constant(True)} if trained else {}
    return syntax.call(f"{SHARDS}.own", syntax.name(names.model(model.name)), **options)


def named_parameters(model: ModelDecl, names: Names) -> ast.expr:
    """Return ``shards.named(net)``: the same by name."""
    return syntax.call(f"{SHARDS}.named", syntax.name(names.model(model.name)))
