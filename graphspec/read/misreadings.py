"""What is wrong with a text that is no expression: why, at which characters, and what to write instead.

Most such texts are good PyTorch, or good mathematics: methods, `and`, `x^2`, `2x`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

MODULES = frozenset({"F", "jnp", "K", "keras", "math", "nn", "np", "numpy", "tf", "torch"})
"""What PyTorch and others write before the names of functions."""
Signatures: TypeAlias = Mapping[str, tuple[int, tuple[str, ...]]]
"""How many values each function takes, 0 where any number, and the names of its options in order."""

_CALLED: Mapping[str, str] = {
    "absolute": "abs",
    "binary_cross_entropy": "bce",
    "binary_cross_entropy_with_logits": "bce_with_logits",
    "bmm": "matmul",
    "cat": "concat",
    "clamp": "clip",
    "clip_by_value": "clip",
    "concatenate": "concat",
    "detach": "stop",
    "divide": "div",
    "dot": "matmul",
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "huber_loss": "huber",
    "l1_loss": "l1",
    "le": "less_equal",
    "lt": "less",
    "mm": "matmul",
    "mse_loss": "mse",
    "multiply": "mul",
    "ne": "not_equal",
    "negative": "neg",
    "nll_loss": "nll",
    "reduce_max": "max",
    "reduce_mean": "mean",
    "reduce_min": "min",
    "reduce_sum": "sum",
    "smooth_l1_loss": "huber",
    "stop_gradient": "stop",
    "subtract": "sub",
}
"""What functions of others that take the same are called here."""
_SHAPED: Mapping[str, tuple[str, str, str]] = {
    "expand": ("expand", "shape", "batch, -1"),
    "flatten": ("reshape", "shape", "batch, -1"),
    "permute": ("permute", "dims", "1, 0"),
    "reshape": ("reshape", "shape", "batch, -1"),
    "swapaxes": ("permute", "dims", "1, 0"),
    "t": ("permute", "dims", "1, 0"),
    "transpose": ("permute", "dims", "1, 0"),
    "view": ("reshape", "shape", "batch, -1"),
}
"""Functions of others that take sizes or axes one by one: the one here, its list, and an example of that."""
_SIZES = frozenset({"expand", "permute", "reshape", "view"})
"""Those whose numbers are the list; the others name axes, which says nothing without the shape."""
_WRITTEN: Mapping[str, tuple[str, ...]] = {
    "bool": ("{0} != 0",),
    "clamp_max": ("minimum({x}, {1})", "1.0"),
    "clamp_min": ("maximum({x}, {1})", "0.0"),
    "double": ("1.0 * {0}",),
    "expm1": ("exp({x}) - 1",),
    "float": ("1.0 * {0}",),
    "gather": ("gather({x}, {2}, axis={1})", "1", "indices"),
    "leaky_relu": ("maximum({x}, {1} * {0})", "0.01"),
    "log1p": ("log(1 + {0})",),
    "logsigmoid": ("-softplus(-{0})",),
    "masked_fill": ("where({1}, {2}, {x})", "mask", "0.0"),
    "reciprocal": ("1 / {0}",),
    "rsqrt": ("1 / sqrt({x})",),
    "silu": ("{0} * sigmoid({x})",),
    "squeeze": ("{0}[:, 0]",),
    "unsqueeze": ("{0}[:, None]",),
}
"""How functions of others are written out: the value is `x`, or `0` in brackets; examples of arguments follow."""
_NEEDLESS = frozenset({"clone", "contiguous", "cpu", "cuda", "item", "numpy", "requires_grad_", "tolist"})
"""Methods that change nothing here."""
_SPLIT = "cut it in an op of its own: `{call: split, inputs: x, args: {sections: 2}, outputs: [a, b]}`"
_ADVICE: Mapping[str, str] = {
    "backward": "a gradient is an op of its own: `{update: net, loss: ...}`",
    "chunk": _SPLIT,
    "dim": "sizes and dtypes are not calculated with",
    "int": "there is no cast to whole numbers: declare the input with `dtype: int64`",
    "kl_div": "`kl_div(student, teacher)` takes the logits of both",
    "long": "there is no cast to whole numbers: declare the input with `dtype: int64`",
    "numel": "sizes and dtypes are not calculated with",
    "size": "sizes and dtypes are not calculated with",
    "split": _SPLIT,
    "to": "leave it out: the run chooses devices and dtypes; a mask becomes numbers by `1.0 * mask`",
    "type": "sizes and dtypes are not calculated with",
}
"""What is said of methods that have no call here, or another meaning."""
ATTRIBUTES = frozenset({"T", "data", "device", "dtype", "grad", "mT", "ndim", "shape", "size"})
"""What values of PyTorch have."""
_OF_ATTRIBUTES: Mapping[str, str] = {
    "T": "write `permute({}, dims=[1, 0])`",
    "data": "write `stop({})`",
    "grad": "a gradient is an op of its own: `{{gradient: {}, wrt: net}}`",
    "mT": "write `permute({}, dims=[1, 0])`",
}
"""What to write instead of those that are no sizes or dtypes."""
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
_NUMBERS = re.compile(r"-?[0-9]+(\s*,\s*-?[0-9]+)*")
_CLOSED = re.compile(r"[\w.${}]+|\w+\([^()]*\)")
"""What needs no brackets before an operator."""
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
        remedy = f"close it with `{close}`"
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
    node: ast.expr,
    line: str,
    find: Callable[[ast.expr], tuple[int, int]],
    functions: Signatures,
    *,
    of_values: bool,
) -> ExpressionError | None:
    """Return the error for a part with a well-known remedy, None for all others.

    ``find`` gives a part's offsets, and ``functions`` are those that expressions have.
    """
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
            module = value
            while isinstance(module, ast.Attribute):  # as in `torch.nn.functional`
                module = module.value
            is_module = isinstance(module, ast.Name) and module.id in MODULES
            message = "functions are called without a module" if is_module else "a value has no methods"
            arguments = node.args if is_module else [value, *node.args]
            # The elements of a list are arguments of their own, where a function joins any number.
            listed = arguments[0].elts if arguments and isinstance(arguments[0], ast.List | ast.Tuple) else []
            texts = [line[slice(*find(each))] for each in [*listed, *arguments[1 if listed else 0 :]]]
            options = [f"{each.arg}={line[slice(*find(each.value))]}" for each in node.keywords if each.arg]
            help = _translate(name, texts, options, len(listed), functions, of_values=of_values)
            return ExpressionError(message, *find(function), help)
        case ast.Call(func=ast.Constant() | ast.BinOp() | ast.Call() as function):
            message, help = "this is called like a function", "write a product with `*`, as in `2 * (a + b)`"
            return ExpressionError(message, *find(function), help)
        case _:
            return _explain_value(node, start, end) if of_values else None


def _translate(
    name: str, texts: list[str], options: list[str], listed: int, functions: Signatures, *, of_values: bool
) -> str:
    """Return what to write instead of a function of another library, called with some arguments.

    The first ``listed`` of them were a list.
    """
    name = name if name in functions or name in _NEEDLESS else name.removesuffix("_")
    value, *rest = texts or ["x"]
    if of_values and name in _NEEDLESS:
        return f"leave `.{name}()` out"
    if of_values and name in _ADVICE:
        return _ADVICE[name]
    if of_values and name in _SHAPED:
        called, option, example = _SHAPED[name]
        numbers = ", ".join(rest).strip("()[]")
        shown = numbers if name in _SIZES and _NUMBERS.fullmatch(numbers) else example
        return f"write `{called}({value}, {option}=[{shown}])`"
    if of_values and name in _WRITTEN:
        template, *examples = _WRITTEN[name]
        operand = value if _CLOSED.fullmatch(value) else f"({value})"
        return f"write `{template.format(operand, *rest, *examples[len(rest) :], x=value)}`"
    if name == "norm" and rest:
        return f"norms are Euclidean: write `norm({value}, axis=-1)`, or without `axis` for all elements"
    called = _CALLED.get(name, name)
    if called in functions:
        count, names = functions[called]
        count = listed or count or len(texts)
        given = [f"{option}={each}" for option, each in zip(names, texts[count:], strict=False)]
        return f"write `{called}({', '.join([*(texts[:count] or ['x']), *given, *options])})`"
    own = "; call your own in an op of its own: `{call: pkg.mod:fn, inputs: x}`" if of_values else ""
    return f"no function is called `{name}`{own}"


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
        help = "write `pi`" if name == "pi" else "`pi` is the only constant with a name"
        return ExpressionError("a name has no module before it", start, end, help)
    help = _OF_ATTRIBUTES.get(name, "sizes and dtypes are not calculated with").format(value or "x")
    return ExpressionError(
        f"{'this' if value is None else repr(value)} is a value, and has no `.{name}`", start, end, help
    )
