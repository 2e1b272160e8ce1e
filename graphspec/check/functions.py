"""Rules on functions of the library: their names, how many inputs and outputs they have, and their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphspec.analysis.scope import Scope
from graphspec.check.options import check_options
from graphspec.declare.compat import adapt_options, find_defaults
from graphspec.declare.functions import FunctionName
from graphspec.declare.inputs import Inputs
from graphspec.declare.library import FUNCTIONS, NOT_BUILT, Family, Signature
from graphspec.declare.names import is_path
from graphspec.declare.ops import CallOp, ForwardOp, GradientOp, LossOp, MetricOp, Op, RandomOp, TransformOp
from graphspec.declare.scheduled import ArgValue
from graphspec.diagnostics import Diagnostic
from graphspec.suggestions import closest
from graphspec.words import count, enumerate_names

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


def check_outputs(scope: Scope) -> Iterator[Diagnostic]:
    """Compare the outputs of every op with its results, where their number is known."""
    for name, op in scope.sound_ops():
        expected = _count_results(scope, op)
        found = len(op.defines(name)) if not isinstance(op, ForwardOp) else _count_plain(op)
        if expected is not None and expected != found:
            yield _mismatch(scope, name, op, expected)


def check_models(scope: Scope) -> Iterator[Diagnostic]:
    """Check the calls of models that are not classes: how many inputs they take, and that they have no methods."""
    for name, op in scope.sound_ops():
        kind = scope.kinds.get(op.forward) if isinstance(op, ForwardOp) else None
        if not isinstance(op, ForwardOp) or kind not in ("layers", "parameter"):
            continue
        expected = 1 if kind == "layers" else 0
        if len(op.inputs) != expected or op.inputs.keyword:
            by_position = " by position" if op.inputs.keyword else ""
            found = f"takes {count(expected, 'input')}{by_position}, found {_describe_inputs(op)}"
            message = f"model '{op.forward}' ({kind}) {found}"
            help = _explain_inputs(expected, len(op.inputs))
            yield scope.report("GS111", message, ("ops", name, "inputs"), key=not op.inputs, help=help)
        if op.method is not None:
            message = f"model '{op.forward}' ({kind}) has no methods"
            yield scope.report("GS056", message, ("ops", name, "method"), help="`method` goes with models of a `class`")


def _describe_inputs(op: ForwardOp) -> str:
    return "a mapping" if op.inputs.keyword else str(len(op.inputs))


def _explain_inputs(expected: int, found: int) -> str:
    if not expected:
        return "leave `inputs` out: `forward` returns the parameter itself"
    return "join them with `call: concat`" if found > 1 else "write `inputs: x`, one reference"


def _count_plain(op: ForwardOp) -> int:
    return sum(output.tap is None for output in op.outputs) if op.outputs else 1


def _count_results(scope: Scope, op: Op) -> int | None:
    match op:
        case ForwardOp() if scope.kinds.get(op.forward) in ("layers", "parameter"):
            return min(1, _count_plain(op))
        case CallOp() if op.call.is_builtin:
            return _count_parts(op) if op.call.name("torch") == "split" else 1
        case GradientOp() if scope.broken.isdisjoint(op.wrt) and all(name in scope.entries for name in op.wrt):
            models, values = op.split(scope.spec.models)
            return bool(models) + len(values)
        case _:
            return None


def _count_parts(op: CallOp) -> int | None:
    sections = op.args.get("sections")
    if isinstance(sections, list):
        return len(sections)
    return sections if isinstance(sections, int) and not isinstance(sections, bool) else None


def _mismatch(scope: Scope, name: str, op: Op, expected: int) -> Diagnostic:
    found = len(op.defines(name))
    written = "outputs" in op.model_fields_set
    message = f"op '{name}' has {count(expected, 'result')} and {count(found, 'name')} for them"
    message = message if written else f"op '{name}' has {count(expected, 'result')}, which need names"
    help = f"write `outputs:` with {count(expected, 'name')}" if expected > 1 else "leave `outputs` out"
    return scope.report("GS116", message, ("ops", name, "outputs"), key=True, help=help)
