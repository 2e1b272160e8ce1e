"""Calls of built-in functions and constructions of built-in layers, as the table of the library says."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from compiler.ir.instructions import Evaluate
from compiler.ir.program import LayerDecl
from compiler.ir.value import Setting
from compiler.types.loss import OF_CLASSES
from graphspec.options import BATCH
from runtime.emission import syntax
from runtime.emission.dialect import Dialect
from runtime.emission.scope import Scope, setting


def builtin_call(instruction: Evaluate, operands: list[ast.expr], scope: Scope) -> ast.expr:
    """Return the call of a built-in function on its operands."""
    call = scope.dialect.call(instruction, scope)
    operands = _checked(instruction, operands, scope) if instruction.open else operands
    first, *rest = [syntax.sequence(operands)] if call.gathered else operands
    between = [setting(value, scope) for value in call.first]
    after = [_sized(value, first, scope) for value in call.positional]
    keywords = {name: setting(value, scope) for name, value in call.keywords.items()}
    return syntax.call(call.path, first, *between, *rest, *after, **keywords)


def _sized(value: Setting, first: ast.expr, scope: Scope) -> ast.expr:
    """Return an option that follows the operands; `batch` in a shape is the size of the first one's leading axis."""
    if not isinstance(value, tuple) or BATCH not in value:
        return setting(value, scope)
    rows = syntax.item(scope.dialect.shape(first), syntax.constant(0))
    return syntax.sequence(rows if each == BATCH else setting(each, scope) for each in value)


AXES: Mapping[str, tuple[int, ...]] = {"cosine": (1,), "kl_div": (2,), "nt_xent": (2, 2)}
"""How many axes the operands of a loss have, at least and at most; the others also take a number."""


def _checked(instruction: Evaluate, operands: list[ast.expr], scope: Scope) -> list[ast.expr]:
    """Return the operands of a loss behind what looks at their shapes: ``*matched(out, y)``."""
    name = instruction.function.name
    if name in OF_CLASSES:
        axis = {"axis": setting(instruction.options["axis"], scope)} if "axis" in instruction.options else {}
        shares = {} if name == "cross_entropy" else {"shares": syntax.constant(False)}
        return [syntax.spread(syntax.call("matched_classes", *operands, **axis, **shares))]
    return [syntax.spread(syntax.call("matched", *operands, *map(syntax.constant, AXES.get(name, ()))))]


def options_of(instruction: Evaluate) -> dict[str, Setting]:
    """Return the options of a built-in function, how a loss is reduced among them."""
    reduced = {} if instruction.reduction is None else {"reduction": instruction.reduction}
    return {**instruction.options, **reduced}


def layer_stack(layers: tuple[LayerDecl, ...], dialect: Dialect, **options: ast.expr) -> ast.expr:
    """Return ``nn.Sequential(...)``: parameters are named by the index of their layer."""
    return syntax.call(dialect.stack, *(_layer(layer, dialect) for layer in layers), **options)


def _layer(layer: LayerDecl, dialect: Dialect) -> ast.expr:
    """Return the construction of one layer; a container takes the layers inside it."""
    made = dialect.layer(layer)
    arguments = [syntax.literal(value) for value in (*made.first, *made.positional)]
    keywords = {name: syntax.literal(value) for name, value in made.keywords.items()}
    return syntax.call(made.path, *(_layer(each, dialect) for each in layer.layers), *arguments, **keywords)
