"""Constructors of syntax trees: emitted code is built from these and never pasted together from strings."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

from compiler.operands import Scheduled, Setting


def name(identifier: str) -> ast.Name:
    """Return the use of an identifier."""
    return ast.Name(id=identifier, ctx=ast.Load())


def dotted(path: str) -> ast.expr:
    """Return the expression of a dotted path such as ``torch.autograd.grad``."""
    head, *rest = path.split(".")
    expression: ast.expr = name(head)
    for part in rest:
        expression = attribute(expression, part)
    return expression


def attribute(value: ast.expr, field: str) -> ast.Attribute:
    """Return ``value.field``."""
    return ast.Attribute(value=value, attr=field, ctx=ast.Load())


def call(function: ast.expr | str, *arguments: ast.expr, **keywords: ast.expr) -> ast.Call:
    """Return a call; a string is the dotted path of the function."""
    callee = dotted(function) if isinstance(function, str) else function
    named = [ast.keyword(arg=key, value=value) for key, value in keywords.items()]
    return ast.Call(func=callee, args=list(arguments), keywords=named)


def method(value: ast.expr, field: str, *arguments: ast.expr) -> ast.Call:
    """Return ``value.field(*arguments)``."""
    return call(attribute(value, field), *arguments)


def item(value: ast.expr, index: ast.expr) -> ast.Subscript:
    """Return ``value[index]``."""
    return ast.Subscript(value=value, slice=index, ctx=ast.Load())


def rest(value: ast.expr) -> ast.Subscript:
    """Return ``value[1:]``."""
    return ast.Subscript(value=value, slice=ast.Slice(lower=ast.Constant(value=1)), ctx=ast.Load())


def constant(value: bool | int | float | str | None) -> ast.expr:
    """Return a literal; non-finite floats become ``float("inf")``, which no literal can spell."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return call("float", ast.Constant(value=repr(value)))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=-value))
    return ast.Constant(value=value)


def literal(value: Setting) -> ast.expr:
    """Return plain data as an expression; sequences become tuples. Raises TypeError for a number that changes."""
    if isinstance(value, Mapping):
        return dictionary({key: literal(entry) for key, entry in value.items()})
    if isinstance(value, (tuple, list)):
        return sequence(literal(entry) for entry in value)
    if isinstance(value, Scheduled):
        raise TypeError(f"{value} is no literal: it changes while training")
    return constant(value)


def sequence(entries: Iterable[ast.expr]) -> ast.Tuple:
    """Return a tuple."""
    return ast.Tuple(elts=list(entries), ctx=ast.Load())


def listing(entries: Iterable[ast.expr]) -> ast.List:
    """Return a list."""
    return ast.List(elts=list(entries), ctx=ast.Load())


def spread(value: ast.expr) -> ast.Starred:
    """Return ``*value``."""
    return ast.Starred(value=value, ctx=ast.Load())


def dictionary(entries: Mapping[str, ast.expr]) -> ast.Dict:
    """Return a dictionary with string keys."""
    return ast.Dict(keys=[ast.Constant(value=key) for key in entries], values=list(entries.values()))


def later(value: ast.expr) -> ast.Lambda:
    """Return ``lambda: value``."""
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=nothing, body=value)


def binary(left: ast.expr, operator: ast.operator, right: ast.expr) -> ast.BinOp:
    """Return ``left operator right``."""
    return ast.BinOp(left=left, op=operator, right=right)


def assign(targets: str | Sequence[str], value: ast.expr) -> ast.Assign:
    """Return ``target = value``, or ``a, b = value`` for several targets."""
    if isinstance(targets, str):
        target: ast.expr = ast.Name(id=targets, ctx=ast.Store())
    else:
        target = ast.Tuple(elts=[ast.Name(id=each, ctx=ast.Store()) for each in targets], ctx=ast.Store())
    return ast.Assign(targets=[target], value=value)


def assign_item(container: str, key: str, value: ast.expr) -> ast.Assign:
    """Return ``container["key"] = value``."""
    target = ast.Subscript(value=name(container), slice=ast.Constant(value=key), ctx=ast.Store())
    return ast.Assign(targets=[target], value=value)


def perform(value: ast.expr) -> ast.Expr:
    """Return an expression as a statement."""
    return ast.Expr(value=value)


def give(value: ast.expr) -> ast.Return:
    """Return ``return value``."""
    return ast.Return(value=value)


def forget(names: Sequence[str]) -> ast.Delete:
    """Return ``del a, b``."""
    return ast.Delete(targets=[ast.Name(id=each, ctx=ast.Del()) for each in names])


def repeat(value: ast.expr) -> ast.For:
    """Return ``for _ in value:``, its body yet to come."""
    return ast.For(target=ast.Name(id="_", ctx=ast.Store()), iter=value, body=[], orelse=[])


def within(*contexts: ast.expr) -> ast.With:
    """Return a ``with`` statement, its body left open."""
    return ast.With(items=[ast.withitem(context_expr=context) for context in contexts], body=[])


def when(condition: ast.expr) -> ast.If:
    """Return an ``if`` statement, its body left open."""
    return ast.If(test=condition, body=[], orelse=[])


def parameter(identifier: str, default: ast.expr | None = None) -> tuple[str, ast.expr | None]:
    """Return one parameter of a function to be, with its default."""
    return identifier, default


def define(
    identifier: str, *parameters: tuple[str, ast.expr | None], decorators: Sequence[ast.expr] = ()
) -> ast.FunctionDef:
    """Return ``def identifier(parameters):``, its body left open."""
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg=each) for each, _ in parameters],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[default for _, default in parameters if default is not None],
    )
    return ast.FunctionDef(name=identifier, args=arguments, body=[], decorator_list=list(decorators))
