"""Rules on functions of the library: their names, how many inputs and outputs they have, and their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphspec.compat import adapt_options, find_defaults
from graphspec.diagnostics import Diagnostic
from graphspec.functions import FunctionName
from graphspec.inputs import Inputs
from graphspec.library import FUNCTIONS, NOT_BUILT, Family, Signature
from graphspec.names import is_path
from graphspec.ops import CallOp, LossOp, MetricOp, Op, RandomOp, TransformOp
from graphspec.rules.options import check_options
from graphspec.scheduled import ArgValue
from graphspec.scope import Scope
from graphspec.suggestions import closest
from graphspec.wording import count, enumerate_names

_FEW = 15
"""How many names a message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One use of a function by an op: of which family, by which name, on what, with which arguments."""

    op: str
    family: Family
    name: str
    inputs: Inputs
    args: Mapping[str, ArgValue]

    @property
    def title(self) -> str:
        """Return the function as a noun phrase."""
        return f"{'random distribution' if self.family == 'random' else self.family} `{self.name}`"


def check_functions(scope: Scope) -> Iterator[Diagnostic]:
    """Check every use of a function of the library; a user's functions are not known here."""
    for name, op in scope.sound_ops():
        use = _find_use(name, op)
        if use is None:
            yield from _check_twice(scope, name, op)
            continue
        signature = FUNCTIONS[use.family].get(use.name)
        if signature is None:
            yield _unknown(scope, use)
        else:
            yield from _check_inputs(scope, use, signature)
            options = adapt_options(signature.options, find_defaults(scope.spec.compat, use.family, use.name))
            yield from check_options(scope, use.title, options, use.args, ("ops", name, "args"))


def _check_twice(scope: Scope, name: str, op: Op) -> Iterator[Diagnostic]:
    """Refuse what a user's function is passed twice by one name; a metric may be a class, which is made with `args`."""
    if not isinstance(op, CallOp | LossOp):
        return
    fields = {**dict.fromkeys(op.inputs.keyword, "inputs"), **({"reduction": "reduction"} if _is_reduced(op) else {})}
    for key in op.args:
        if key in fields:
            message = f"the argument {key!r} is passed twice: by `{fields[key]}` and by `args`"
            yield scope.report("GS059", message, ("ops", name, "args", key), key=True, help="remove one of them")
    if _is_reduced(op) and "reduction" in op.inputs.keyword:
        message = "the argument 'reduction' is passed twice: by `inputs` and by `reduction`"
        yield scope.report("GS059", message, ("ops", name, "inputs", "reduction"), key=True, help="remove one of them")


def _is_reduced(op: Op) -> bool:
    return isinstance(op, LossOp) and op.reduction is not None


def _find_use(name: str, op: Op) -> Use | None:
    match op:
        case LossOp():
            return _use(name, "loss", op.loss, op.inputs, op.args)
        case CallOp():
            return _use(name, "call", op.call, op.inputs, op.args)
        case MetricOp():
            return _use(name, "metric", op.metric, op.inputs, op.args)
        case TransformOp():
            return _use(name, "transform", op.transform, Inputs(positional=op.inputs), op.args)
        case RandomOp():
            return Use(op=name, family="random", name=op.random, inputs=Inputs(), args=op.args)
        case _:
            return None


def _use(op: str, family: Family, function: FunctionName, inputs: Inputs, args: Mapping[str, ArgValue]) -> Use | None:
    if not function.is_builtin:
        return None
    return Use(op=op, family=family, name=function.given[0], inputs=inputs, args=args)


def _unknown(scope: Scope, use: Use) -> Diagnostic:
    path = ("ops", use.op, use.family)
    names = tuple(FUNCTIONS[use.family])
    listing = ", ".join(names) if len(names) <= _FEW else "those of docs/functions.md"
    help = f"the library has {listing}; a function of your own is written `pkg.mod:fn`"
    if use.name in NOT_BUILT[use.family]:
        message = f"`{use.family}: {use.name}` is part of the language but not built yet"
        return scope.report("GS045", message, path, help=help)
    message = f"no {use.family} is named '{use.name}'"
    return scope.report("GS110", message, path, label=_suggest(use, names), help=help)


def _suggest(use: Use, names: tuple[str, ...]) -> str:
    """Return what was probably meant: a function of another family, a path with its colon, or a similar name."""
    near = closest(use.name, names)
    others = [family for family in FUNCTIONS if use.name in FUNCTIONS[family] and family != "random"]
    module, dot, function = use.name.rpartition(".")
    if others:
        return f"'{use.name}' is a {others[0]}: did you mean `{others[0]}: {use.name}`?"
    if dot and is_path(f"{module}:{function}"):
        return f"did you mean '{module}:{function}'?"
    return f"did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def _check_inputs(scope: Scope, use: Use, signature: Signature) -> Iterator[Diagnostic]:
    path = ("ops", use.op, "inputs")
    if use.family == "random":
        return
    operands = enumerate_names(signature.operands)
    if use.inputs.keyword:
        help = f"write a list: its inputs are {operands}, in this order"
        yield scope.report("GS111", f"{use.title} takes its inputs by position", path, help=help)
    elif not signature.fewest <= len(use.inputs) <= (signature.most or len(use.inputs)):
        more = " or more" if signature.repeats else ""
        expected = f"{count(signature.fewest, 'input')}{more} ({', '.join(signature.operands)})"
        message = f"{use.title} takes {expected}, found {len(use.inputs)}"
        yield scope.report("GS111", message, path, key=not use.inputs, help=f"it is: {signature.meaning}")
