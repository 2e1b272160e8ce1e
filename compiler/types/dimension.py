"""Arithmetic of sizes that may be names.

A size that depends on a free dimension is an expression, as text: ``2*batch``, ``height//2``. Expressions that differ
may still be equal, so only :func:`is_surely_unequal` decides that two sizes do not match.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

from compiler.ir.value import Dimension, Shape

_LINEAR = re.compile(r"(?:(?P<factor>\d+)\*)?(?P<base>[A-Za-z_]\w*(?://\d+)?|\([^()]*\))(?P<offset>[+-]\d+)?")

_NAMES = re.compile(r"[A-Za-z_]\w*")


def _split(size: str) -> tuple[int, str, int]:
    """Return factor, base and offset of a size; a text of another form is its own base."""
    match = _LINEAR.fullmatch(size)
    if match is None:
        return 1, size, 0
    return int(match["factor"] or 1), match["base"].strip("()"), int(match["offset"] or 0)


def _join(factor: int, base: str, offset: int) -> Dimension:
    """Return ``factor*base+offset``, leaving out what changes nothing."""
    if factor == 0:
        return offset
    product = base if factor == 1 else f"{factor}*{_operand(base)}"
    return f"{product}{offset:+d}" if offset else product


def _operand(size: Dimension) -> str:
    """Return a size as an operand of ``*`` or ``//``, in parentheses where it needs them."""
    return str(size) if str(size).isidentifier() else f"({size})"


def add(size: Dimension, offset: int) -> Dimension:
    """Return ``size + offset``."""
    if isinstance(size, int):
        return size + offset
    factor, base, constant = _split(size)
    return _join(factor, base, constant + offset)


def scale(size: Dimension, factor: int) -> Dimension:
    """Return ``factor * size``."""
    if isinstance(size, int):
        return factor * size
    inner, base, constant = _split(size)
    return _join(factor * inner, base, factor * constant)


def divide(size: Dimension, divisor: int) -> Dimension:
    """Return ``size // divisor``."""
    if isinstance(size, int):
        return size // divisor
    factor, base, constant = _split(size)
    if factor % divisor == 0 and constant % divisor == 0:
        return _join(factor // divisor, base, constant // divisor)
    return f"{_operand(size)}//{divisor}"


def multiply(sizes: Iterable[Dimension]) -> Dimension:
    """Return the product of sizes, 1 for none."""
    factor, names = 1, list[str]()
    for size in sizes:
        if isinstance(size, int):
            factor *= size
        else:
            names.append(size)
    if len(names) <= 1:
        return scale(names[0], factor) if names else factor
    return _join(factor, "*".join(_operand(name) for name in names), 0)


def is_multiple(size: str, name: str) -> bool:
    """Return whether a size is a fixed multiple of a free dimension."""
    _, base, offset = _split(size)
    return base == name and not offset


def total(sizes: Iterable[Dimension]) -> Dimension:
    """Return the sum of sizes: ``2*batch`` for twice ``batch``."""
    constant, factors = 0, dict[str, int]()
    for size in sizes:
        factor, base, offset = (0, "", size) if isinstance(size, int) else _split(size)
        factors[base] = factors.get(base, 0) + factor
        constant += offset
    terms = [str(_join(factor, base, 0)) for base, factor in factors.items() if factor]
    return add("+".join(terms), constant) if terms else constant


def least(size: Dimension) -> int:
    """Return a number that a size is never below, as each free dimension is at least 1."""
    if isinstance(size, int):
        return size
    factor, base, offset = _split(size)
    return max(factor + offset, 0) if base.isidentifier() else 0


def evaluate(size: Dimension, sizes: Mapping[str, int]) -> int | None:
    """Return a size, given free dimensions; None where it depends on another one."""
    if isinstance(size, int):
        return size
    try:
        return _evaluate(_parse(size), sizes)
    except (SyntaxError, LookupError):
        return None


@functools.lru_cache(maxsize=1_000)
def _parse(size: str) -> ast.expr:
    return ast.parse(size, mode="eval").body


def _evaluate(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    """Return the value of an expression of sizes; raise LookupError for what it has besides."""
    match tree:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _evaluate(left, sizes) + _evaluate(right, sizes)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _evaluate(left, sizes) - _evaluate(right, sizes)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _evaluate(left, sizes) * _evaluate(right, sizes)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return _evaluate(left, sizes) // _evaluate(right, sizes)
        case ast.Call(func=ast.Name(id="max"), args=list(arguments), keywords=[]):
            return max(_evaluate(each, sizes) for each in arguments)
        case _:
            raise LookupError


def find_free(size: Dimension) -> frozenset[str]:
    """Return the free dimensions that a size depends on."""
    return frozenset() if isinstance(size, int) else frozenset(_NAMES.findall(size)) - {"max"}


def maximum(left: Dimension, right: Dimension) -> Dimension:
    """Return the size two sizes broadcast to, if they fit: the one that is not 1, or the one that is a number."""
    if left == right or left == 1:
        return right
    if right == 1 or isinstance(left, int):
        return left
    return right if isinstance(right, int) else f"max({left}, {right})"


def is_surely_unequal(left: Dimension, right: Dimension) -> bool:
    """Return whether two sizes differ for all values of the free dimensions (each named one is at least 1)."""
    if isinstance(left, int) and isinstance(right, int):
        return left != right
    if isinstance(left, int) or isinstance(right, int):
        return False
    (factor, base, offset), (other_factor, other_base, other_offset) = _split(left), _split(right)
    if base != other_base:
        return False
    return offset != other_offset if factor == other_factor else offset == other_offset and base.isidentifier()


def is_surely_incompatible(left: Dimension, right: Dimension) -> bool:
    """Return whether two sizes never broadcast: two different numbers, neither of them 1."""
    return isinstance(left, int) and isinstance(right, int) and left != right and 1 not in (left, right)


Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices below the thing that is checked: the layer list of a model, or the fields of an op."""


class ShapeProblem(Exception):
    """A shape or dtype that is certainly wrong, at a place inside the model or op that is checked."""

    def __init__(self, path: Place, found: str, expected: str, help: str = "") -> None:
        super().__init__(f"found {found}, expected {expected}" + (f"; {help}" if help else ""))
        self.path = path
        self.found = found
        self.expected = expected
        self.help = help


def format_shape(shape: Shape | None) -> str:
    """Return a shape as the language writes it: ``[batch, 10]``; ``[...]`` where it is unknown."""
    return "[...]" if shape is None else f"[{', '.join(str(size) for size in shape)}]"


class TensorType(Struct, frozen=True):
    """A shape, or None where even the rank is unknown, and a dtype, or None where it is unknown."""

    shape: Shape | None = None
    dtype: str | None = None

    def __str__(self) -> str:
        """Return ``[batch, 10] float32``."""
        return format_shape(self.shape) + (f" {self.dtype}" if self.dtype else "")


UNKNOWN = TensorType()
