"""What is wrong with a text that is no expression: why, at which characters, and what to write instead.

Most such texts are good PyTorch, or good mathematics: methods, `and`, `x^2`, `2x`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

MODULES = frozenset({"F", "jnp", "K", "keras", "math", "nn", "np", "numpy", "tf", "torch"})
"""What PyTorch and others write before the names of functions."""
_SAME: Mapping[str, str] = {
    "clamp": "clip({}, min=0.0, max=1.0)",
    "clip_by_value": "clip({}, min=0.0, max=1.0)",
    "detach": "stop({})",
    "item": "{}",
    "stop_gradient": "stop({})",
}
"""What functions of others are called here."""
ATTRIBUTES = frozenset({"T", "data", "device", "dtype", "grad", "mT", "ndim", "shape", "size"})
"""What values of PyTorch have."""
_SHARED: Mapping[type[ast.AST], tuple[str, str]] = {ast.BitXor: ("^", "a power is `x**2`")}
_OF_VALUES: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.And: ("and", "masks are combined element by element: `(a > 0) & (b > 0)`"),
    ast.Or: ("or", "masks are combined element by element: `(a > 0) | (b > 0)`"),
    ast.Not: ("not", "write `~mask`"),
    ast.FloorDiv: ("//", "round in a function of your own: `{call: pkg.mod:fn, inputs: x}`"),
    ast.Mod: ("%", "take the remainder in a function of your own: `{call: pkg.mod:fn, inputs: x}`"),
}
"""Operators of Python that expressions do not have: how they are written, and what to write instead."""
_SIGNS: Mapping[str, str] = {
    "\N{MULTIPLICATION SIGN}": "*",
    "\N{MIDDLE DOT}": "*",
    "\N{DOT OPERATOR}": "*",
    "\N{DIVISION SIGN}": "/",
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
    "\N{SUPERSCRIPT TWO}": "**2",
    "\N{SUPERSCRIPT THREE}": "**3",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{NOT EQUAL TO}": "!=",
}
"""Signs of mathematics, as they are in text that is copied from a paper, and how expressions write them."""
_SLIPS: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"&&"), "an expression has no `&&`", _OF_VALUES[ast.And][1]),
    (re.compile(r"\|\|"), "an expression has no `||`", _OF_VALUES[ast.Or][1]),
    (re.compile(r"!(?!=)"), "an expression has no `!`", "write `~mask`"),
    (
        re.compile(r"(?<![<>=!])=(?!=)"),
        "an expression assigns nothing",
        "write what stands right of the `=`: the op has the name already",
    ),
    (re.compile(r";"), "an expression is one formula", "write the second one as an op of its own"),
    (re.compile(r"\$\{?\w*"), "this is not a variable", "a variable is written `${name}`"),
    (re.compile(r"[A-Za-z_]\w*\.\d+", re.ASCII), "this is not a name", "give that part an op of its own"),
    (
        re.compile(r"(?<![\w.])[\d.]+\s*[A-Za-z_]\w*", re.ASCII),
        "there is no operator between the number and the name",
        "write a product with `*`, as in `2 * x`",
    ),
    (
        re.compile(r"[\w)\]}]+\s+[\w(]\w*"),
        "there is no operator between the two",
        "write a product with `*`, as in `a * b`; arguments have a comma between them",
    ),
)
"""What Python's reader stumbles over: how it is found at that place, what it is, and what to write instead."""
_DANGLING = re.compile(r"(\*\*|[<>=!]=|[-+*/@%<>&|~,])\s*$")
_CLOSES = {")": "(", "]": "["}
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class ExpressionError(ValueError):
    """An expression that cannot be read, or has no value: why, at which characters, and what to write instead."""

    def __init__(self, message: str, start: int, end: int, help: str) -> None:
        super().__init__(message)
        self.message, self.start, self.end, self.help = message, start, end, help


def explain_text(text: str, at: int, help: str) -> ExpressionError:
    """Return the error for a text of one line that Python cannot read from an offset on; ``help`` is for the others."""
    if not text.strip():
        return ExpressionError("the expression is empty", at, at + 1, help)
    opened: list[int] = []
    for index, each in enumerate(_QUOTED.sub(lambda found: " " * len(found.group()), text)):
        if each in _CLOSES.values():
            opened.append(index)
        elif each in _CLOSES and (not opened or text[opened.pop()] != _CLOSES[each]):
            remedy = f"remove it, or open a bracket before it with `{_CLOSES[each]}`"
            return ExpressionError(f"this `{each}` closes no bracket", index, index + 1, remedy)
    if opened:
        bracket = text[opened[-1]]
        close = next(each for each, begin in _CLOSES.items() if begin == bracket)
        remedy = f"close it with `{close}`; between `{{` and `}}` of YAML a text with a comma in it needs quotes"
        return ExpressionError(f"this `{bracket}` is not closed", opened[-1], opened[-1] + 1, remedy)
    character = text[at : at + 1]
    if character and not character.isascii():
        written = _SIGNS.get(character)
        remedy = help if written is None else f"write `{written}`"
        return ExpressionError(f"an expression has no {character!r}", at, at + 1, remedy)
    for pattern, message, remedy in _SLIPS:
        for found in pattern.finditer(text):
            if found.start() <= at + 1 and at <= found.end():
                return ExpressionError(message, found.start(), found.start() + len(found.group().rstrip()), remedy)
    dangling = _DANGLING.search(text)
    if dangling is not None and dangling.start() > 0:
        remedy = f"write what follows the `{dangling[1]}`"
        return ExpressionError("the expression ends too early", dangling.start(1), dangling.end(1), remedy)
    return ExpressionError("this is not an expression", at, at + 1, help)


def explain_node(
    node: ast.expr, line: str, find: Callable[[ast.expr], tuple[int, int]], *, of_values: bool
) -> ExpressionError | None:
    """Return the error for a part with a well-known remedy, None for all others; ``find`` gives a part's offsets."""
    start, end = find(node)
    operators = {**_SHARED, **(_OF_VALUES if of_values else {})}
    kind = type(node.op) if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp) else type(node)
    if kind in operators:
        written, help = operators[kind]
        match node:
            case ast.BinOp(left=left) | ast.BoolOp(values=[left, *_]):
                start = line.find(written, find(left)[1])
            case _:
                pass
        return ExpressionError(f"an expression has no `{written}`", start, start + len(written), help)
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name) as function):
            is_module = isinstance(value, ast.Name) and value.id in MODULES
            base = "..." if is_module else line[slice(*find(value))]
            rest = ", ..." if not is_module and (node.args or node.keywords) else ""
            same = _SAME.get(name, f"{name}({{}}{rest})").format(base)
            message = "functions are called without a module" if is_module else "a value has no methods"
            return ExpressionError(message, *find(function), f"write `{same}`")
        case ast.Call(func=ast.Constant() | ast.BinOp() | ast.Call() as function):
            message, help = "this is called like a function", "write a product with `*`, as in `2 * (a + b)`"
            return ExpressionError(message, *find(function), help)
        case _:
            return _explain_value(node, start, end) if of_values else None


def explain_mask(node: ast.BinOp, start: int, end: int) -> ExpressionError | None:
    """Return the error for a number where a mask must be, as in `0 & b` of `a > 0 & b < 1`; None for all others."""
    is_mask = isinstance(node.op, ast.BitAnd | ast.BitOr)
    if not is_mask or not any(isinstance(each, ast.Constant) for each in (node.left, node.right)):
        return None
    help = "put each comparison in brackets: `(a > 0) & (b < 1)`"
    return ExpressionError("`&` and `|` bind closer than comparisons", start, end, help)


def _explain_value(node: ast.expr, start: int, end: int) -> ExpressionError | None:
    """Return the error for a part that only expressions of values have a remedy for."""
    match node:
        case ast.Compare(comparators=[ast.BinOp(op=ast.BitAnd() | ast.BitOr()), _]):
            message = "`&` and `|` bind closer than comparisons"
            help = "put each comparison in brackets: `(a > 0) & (b < 1)`"
        case ast.Compare(ops=[_, _, *_]):
            message, help = "these are several comparisons in one", "compare twice: `(0 < x) & (x < 1)`"
        case ast.IfExp():
            message, help = "an expression has no `if`", "write `where(condition, a, b)`"
        case ast.List():
            message = "a list is no value"
            help = (
                "lists of numbers have names, as in `reshape(x, shape=[-1, 8])`; of values write each: `concat(a, b)`"
            )
        case ast.Tuple():
            message = "a list is no value"
            help = "write values one by one, as in `concat(a, b, axis=1)`, and decimals as `0.5`"
        case ast.Constant():
            message = "this is not a value"
            help = "numbers are the only constants; options have names, as in `mse(a, b, reduction='sum')`"
        case ast.Set() | ast.Dict():
            message, help = "this is not a variable", "a variable is written `${name}`"
        case _:
            return None
    return ExpressionError(message, start, end, help)


def explain_attribute(value: str | None, name: str, start: int, end: int) -> ExpressionError:
    """Return the error for an attribute of a module or of a value, None for one without a name."""
    if value in MODULES:
        return ExpressionError("a name has no module before it", start, end, f"write `{name}`")
    help = "sizes and dtypes are not calculated with"
    if name == "T":
        help = f"write `permute({value or 'x'}, dims=[1, 0])`"
    return ExpressionError(
        f"{'this' if value is None else repr(value)} is a value, and has no `.{name}`", start, end, help
    )
