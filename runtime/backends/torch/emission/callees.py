"""Calls of built-in functions and constructions of built-in layers, as the table of the library says."""

from __future__ import annotations

import ast

from compiler.program import Constant, Evaluate, LayerDecl
from runtime.backends.torch.emission import syntax
from runtime.backends.torch.library.table import resolve_function, resolve_layer


def builtin_call(instruction: Evaluate, operands: list[ast.expr]) -> ast.expr:
    """Return the call of a built-in function on its operands."""
    options = dict(instruction.options)
    if instruction.reduction is not None:
        options["reduction"] = instruction.reduction
    literal = any(isinstance(argument.operand, Constant) for argument in instruction.arguments)
    call = resolve_function(instruction.family, instruction.function.name, options, literal=literal)
    first, *rest = [syntax.sequence(operands)] if call.gathered else operands
    between = [syntax.literal(value) for value in call.first]
    after = [syntax.literal(value) for value in call.positional]
    keywords = {name: syntax.literal(value) for name, value in call.keywords.items()}
    return syntax.call(call.path, first, *between, *rest, *after, **keywords)


def layer_stack(layers: tuple[LayerDecl, ...]) -> ast.expr:
    """Return ``nn.Sequential(...)``: parameters are named by the index of their layer."""
    return syntax.call("nn.Sequential", *(_layer(layer) for layer in layers))


def _layer(layer: LayerDecl) -> ast.expr:
    """Return the construction of one layer; a container takes the layers inside it."""
    made = resolve_layer(layer.kind, layer.options)
    arguments = [syntax.literal(value) for value in (*made.first, *made.positional)]
    keywords = {name: syntax.literal(value) for name, value in made.keywords.items()}
    return syntax.call(made.path, *(_layer(each) for each in layer.layers), *arguments, **keywords)
