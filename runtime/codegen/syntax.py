"""Constructors of syntax trees: emitted code is built from these and never assembled from strings.

No other module makes a node with a name in it, so every name of the emitted code is checked here. Names are first
checked when the spec is read; a ValueError here is a bug of stepgraph, and the last barrier before code runs.
"""

from __future__ import annotations

import ast
import functools
import keyword
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from compiler.ir.value import Scheduled, Setting
from graphspec.declare.subscripts import Slice, Subscript

RESERVED = frozenset((*keyword.kwlist, "__debug__"))
_UNSAID = frozenset({"ctx", "kind", "type_comment", "type_params"})
_LOAD, _STORE, _DEL = ast.Load(), ast.Store(), ast.Del()


@functools.lru_cache(maxsize=65_536)
def identifier(text: str) -> str:
    """Return a text unchanged if it is an identifier of Python; raise ValueError for any other."""
    if text.isascii() and text.isidentifier() and text not in RESERVED:
        return text
    raise ValueError(f"{text[:80]!r} is no identifier, so it has no place in emitted code")


@functools.cache
def fields_of(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the fields of a kind of node, without those that follow from the rest of a tree or are never emitted."""
    return tuple(each for each in kind._fields if each not in _UNSAID)


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, in any order: `ast.walk` takes three times as long."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        for field in fields_of(node.__class__):
            value = getattr(node, field, None)
            if isinstance(value, ast.AST):
                pending.append(value)
            elif isinstance(value, list):
                pending.extend(each for each in cast("list[object]", value) if isinstance(each, ast.AST))


def name(text: str) -> ast.Name:
    """Return the use of an identifier."""
    return ast.Name(id=identifier(text), ctx=_LOAD)


def store(text: str) -> ast.Name:
    """Return an identifier as the target of an assignment."""
    return ast.Name(id=identifier(text), ctx=_STORE)


def dotted(path: str) -> ast.expr:
    """Return the expression of a dotted path such as ``torch.autograd.grad``."""
    head, *rest = path.split(".")
    expression: ast.expr = name(head)
    for part in rest:
        expression = attribute(expression, part)
    return expression


def attribute(value: ast.expr, field: str) -> ast.Attribute:
    """Return ``value.field``."""
    return ast.Attribute(value=value, attr=identifier(field), ctx=_LOAD)


def call(function: ast.expr | str, /, *arguments: ast.expr, **keywords: ast.expr) -> ast.Call:
    """Return a call; a string is the dotted path of the function."""
    callee = dotted(function) if isinstance(function, str) else function
    named = [ast.keyword(arg=identifier(key), value=value) for key, value in keywords.items()]
    return ast.Call(func=callee, args=list(arguments), keywords=named)


def method(value: ast.expr, field: str, /, *arguments: ast.expr, **keywords: ast.expr) -> ast.Call:
    """Return ``value.field(*arguments, **keywords)``."""
    return call(attribute(value, field), *arguments, **keywords)


def item(value: ast.expr, index: ast.expr) -> ast.Subscript:
    """Return ``value[index]``."""
    return ast.Subscript(value=value, slice=index, ctx=_LOAD)


def rest(value: ast.expr) -> ast.Subscript:
    """Return ``value[1:]``."""
    return ast.Subscript(value=value, slice=ast.Slice(lower=ast.Constant(value=1)), ctx=_LOAD)


def constant(value: bool | int | float | str | None) -> ast.expr:
    """Return a literal; non-finite floats become ``float("inf")``, which no literal can spell."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return call("float", ast.Constant(value=repr(value)))
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.copysign(1, value) < 0:
        return ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=-value))
    return ast.Constant(value=value)


def literal(value: Setting) -> ast.expr:
    """Return plain data as an expression; sequences become tuples, a subscript what stands between brackets.

    Raises TypeError for a number that changes.
    """
    if isinstance(value, Mapping):
        return dictionary({key: literal(entry) for key, entry in value.items()})
    if isinstance(value, (tuple, list)):
        return sequence(map(literal, value))
    if isinstance(value, Scheduled):
        raise TypeError(f"{value} is no literal: it changes while training")
    if isinstance(value, Subscript):
        places: list[ast.expr] = []
        for place in value.places:
            if isinstance(place, Slice):
                lower = constant(place.start) if place.start else None
                upper = None if place.stop is None else constant(place.stop)
                step = constant(place.step) if place.step > 1 else None
                places.append(ast.Slice(lower=lower, upper=upper, step=step))
            else:
                places.append(constant(place))
        return places[0] if len(places) == 1 else sequence(places)
    return constant(value)


def sequence(entries: Iterable[ast.expr]) -> ast.Tuple:
    """Return a tuple."""
    return ast.Tuple(elts=list(entries), ctx=_LOAD)


def listing(entries: Iterable[ast.expr]) -> ast.List:
    """Return a list."""
    return ast.List(elts=list(entries), ctx=_LOAD)


def spread(value: ast.expr) -> ast.Starred:
    """Return ``*value``."""
    return ast.Starred(value=value, ctx=_LOAD)


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
        return ast.Assign(targets=[store(targets)], value=value)
    return ast.Assign(targets=[ast.Tuple(elts=[store(each) for each in targets], ctx=_STORE)], value=value)


def unpack(rest: str, targets: Sequence[str], value: ast.expr) -> ast.Assign:
    """Return ``*rest, a, b = value``."""
    starred = ast.Starred(value=store(rest), ctx=_STORE)
    target = ast.Tuple(elts=[starred, *(store(each) for each in targets)], ctx=_STORE)
    return ast.Assign(targets=[target], value=value)


def register(text: str, *kinds: ast.expr) -> ast.AnnAssign:
    """Return ``text: dict[kind, kind] = {}``."""
    annotation = item(name("dict"), sequence(kinds))
    return ast.AnnAssign(target=store(text), annotation=annotation, value=dictionary({}), simple=1)


def assign_item(container: str, key: str, value: ast.expr) -> ast.Assign:
    """Return ``container["key"] = value``."""
    target = ast.Subscript(value=name(container), slice=ast.Constant(value=key), ctx=_STORE)
    return ast.Assign(targets=[target], value=value)


def refuse(message: str) -> ast.Raise:
    """Return ``raise ValueError(message)``."""
    return ast.Raise(exc=call("ValueError", constant(message)), cause=None)


def perform(value: ast.expr) -> ast.Expr:
    """Return an expression as a statement."""
    return ast.Expr(value=value)


def give(value: ast.expr) -> ast.Return:
    """Return ``return value``."""
    return ast.Return(value=value)


def forget(names: Sequence[str]) -> ast.Delete:
    """Return ``del a, b``."""
    return ast.Delete(targets=[ast.Name(id=identifier(each), ctx=_DEL) for each in names])


def repeat(value: ast.expr) -> ast.For:
    """Return ``for _ in value:``, its body left open."""
    return ast.For(target=store("_"), iter=value, body=[], orelse=[])


def each_of(variables: Sequence[str], iterable: ast.expr, *conditions: ast.expr) -> ast.comprehension:
    """Return ``for a, b in iterable if condition`` of a comprehension."""
    named = [store(each) for each in variables]
    target = named[0] if len(named) == 1 else ast.Tuple(elts=[*named], ctx=_STORE)
    return ast.comprehension(target=target, iter=iterable, ifs=list(conditions), is_async=0)


def within(*contexts: ast.expr) -> ast.With:
    """Return a ``with`` statement, its body left open."""
    return ast.With(items=[ast.withitem(context_expr=context) for context in contexts], body=[])


def within_named(contexts: Iterable[tuple[ast.expr, str]]) -> ast.With:
    """Return ``with context as name, ...:``, its body left open."""
    items = [ast.withitem(context_expr=context, optional_vars=store(text)) for context, text in contexts]
    return ast.With(items=items, body=[])


def share(names: Iterable[str]) -> ast.Global:
    """Return ``global a, b``."""
    return ast.Global(names=[identifier(each) for each in names])


def bring(module: str, alias: str | None) -> ast.Import:
    """Return ``import module as alias``."""
    return ast.Import(names=[_alias(module, alias)])


def bring_from(module: str, members: Iterable[tuple[str, str | None]]) -> ast.ImportFrom:
    """Return ``from module import member as alias, ...``."""
    names = [_alias(identifier(member), alias) for member, alias in members]
    return ast.ImportFrom(module=_path(module), names=names, level=0)


def _alias(path: str, alias: str | None) -> ast.alias:
    """Return the name that an import binds."""
    return ast.alias(name=_path(path), asname=None if alias is None else identifier(alias))


def _path(text: str) -> str:
    """Return a dotted path unchanged; raise ValueError where a part of it is not an identifier."""
    for part in text.split("."):
        identifier(part)
    return text


def negate(value: ast.expr) -> ast.expr:
    """Return ``not value``."""
    return ast.UnaryOp(op=ast.Not(), operand=value)


def when(condition: ast.expr) -> ast.If:
    """Return an ``if`` statement, its body left open."""
    return ast.If(test=condition, body=[], orelse=[])


def parameter(text: str, default: ast.expr | None = None) -> tuple[str, ast.expr | None]:
    """Return one parameter of a function, with its default."""
    return text, default


def define(text: str, *parameters: tuple[str, ast.expr | None], decorators: Sequence[ast.expr] = ()) -> ast.FunctionDef:
    """Return ``def text(parameters):``, its body left open."""
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg=identifier(each)) for each, _ in parameters],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[default for _, default in parameters if default is not None],
    )
    return ast.FunctionDef(name=identifier(text), args=arguments, body=[], decorator_list=list(decorators))
