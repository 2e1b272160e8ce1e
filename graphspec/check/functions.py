"""Rules on what ops call: functions of the library and models, their inputs, outputs and arguments, and sizes drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphspec.analysis.derived import find_derived
from graphspec.analysis.scope import RuleContext, find_expression
from graphspec.check.options import check_options
from graphspec.declare.compat import adapt_options, find_defaults
from graphspec.declare.fields import is_path
from graphspec.declare.inputs import Inputs
from graphspec.declare.layers import Layer
from graphspec.declare.library import CALLS, COUNTED, FUNCTIONS, LOSSES, Family, Signature
from graphspec.declare.ops import CallOp, ForwardOp, GradientOp, LossOp, MetricOp, RandomOp, TransformOp
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path
from graphspec.words import closest, count, did_you_mean, enumerate_names, fix_name

_FEW = 15
"""How many names a message lists."""
OF_TWO = {"max": "maximum", "min": "minimum"}
"""What Python calls the same for the elements of one value and for two values."""


def check_functions(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check every use of a function of the library; a user's functions are not known here."""
    for name, op in scope.sound_ops():
        match op:
            case RandomOp():
                called, inputs = op.random, Inputs()
            case LossOp(loss=function) | CallOp(call=function) | MetricOp(metric=function):
                called, inputs = function.given[0] if function.is_builtin else None, op.inputs
            case TransformOp(transform=function):
                called, inputs = function.given[0] if function.is_builtin else None, Inputs(positional=op.inputs)
            case _:
                continue
        signature = FUNCTIONS[op.kind].get(called) if called is not None else None
        if called is None or signature is None:
            if called is not None:
                is_formula = find_expression(op) is not None
                yield _report_unknown(scope, ("ops", name, op.kind), op.kind, called, is_formula=is_formula)
            continue
        title = f"{'random distribution' if op.kind == 'random' else op.kind} `{called}`"
        path: Path = ("ops", name, "inputs")
        if inputs.keyword:
            help = f"write a list: its inputs are {enumerate_names(signature.operands)}, in this order"
            yield scope.report("GS111", f"{title} takes its inputs by position", path, help=help)
        elif any(fix_name(each) for _, each in inputs.references()):
            pass  # a list or an expression that is written as one name, which is reported as such
        elif not signature.fewest <= len(inputs) <= (signature.most or len(inputs)) and op.kind != "random":
            more = " or more" if signature.repeats else ""
            expected = f"{count(signature.fewest, 'input')}{more} ({', '.join(signature.operands)})"
            message = f"{title} takes {expected}, found {len(inputs)}"
            yield scope.report("GS111", message, path, key=not inputs, help=_explain_call(signature, called, inputs))
        options = adapt_options(signature.options, find_defaults(scope.spec.compat, op.kind, called))
        yield from check_options(scope, title, options, op.args, ("ops", name, "args"))


def _explain_call(signature: Signature, called: str, inputs: Inputs) -> str:
    """Return what a function is, and how to write what was probably meant with another number of inputs."""
    other = OF_TWO.get(called) if len(inputs) == 2 else None
    rest = inputs.positional[signature.fewest :]
    if other is not None:
        return f"it is: {signature.meaning}; of two values write `{other}`"
    if rest and not signature.repeats and all(isinstance(each, int | float) for each in rest):
        names = [f"{option.name}={each}" for option, each in zip(signature.options, rest, strict=False)]
        if names:
            return f"it is: {signature.meaning}; options have names: `{', '.join(names)}`"
    return f"it is: {signature.meaning}"


def check_arguments(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse what a user's function is passed twice by one name; a metric may be a class, which is made with `args`."""
    for name, op in scope.sound_ops():
        match op:
            case LossOp(loss=function) | CallOp(call=function) if not function.is_builtin:
                is_reduced = isinstance(op, LossOp) and op.reduction is not None
            case _:
                continue
        fields = dict.fromkeys(op.inputs.keyword, "inputs") | ({"reduction": "reduction"} if is_reduced else {})
        for key in op.args:
            if key in fields:
                message = f"the argument {key!r} is passed twice: by `{fields[key]}` and by `args`"
                yield scope.report("GS059", message, ("ops", name, "args", key), key=True, help="remove one of them")
        if is_reduced and "reduction" in op.inputs.keyword:
            message = "the argument 'reduction' is passed twice: by `inputs` and by `reduction`"
            path: Path = ("ops", name, "inputs", "reduction")
            yield scope.report("GS059", message, path, key=True, help="remove one of them")


def _report_unknown(scope: RuleContext, path: Path, family: Family, name: str, *, is_formula: bool) -> Diagnostic:
    """Return the problem of a name that a family does not have, and what was probably meant."""
    names = tuple(FUNCTIONS[family])
    listing = ", ".join(names) if len(names) <= _FEW else "those of docs/functions.md"
    own = "call your own function in an op of its own" if is_formula else "write your own function as `pkg.mod:fn`"
    help = f"the library has {listing}; {own}"
    others = [other for other in FUNCTIONS if name in FUNCTIONS[other] and other != "random"]
    module, dot, function = name.rpartition(".")
    near = closest(name, (*CALLS, *LOSSES) if is_formula else names)
    label = f"did you mean {' or '.join(repr(each) for each in near)}?" if near else ""
    if "(" in name or " " in name:
        label, help = "", f'write an expression as `{{expr: "{name}"}}`'
    elif family == "loss" and name == "mean":
        label, help = (
            "a mean is a call",
            "in an expression it is `mean(x)`; with a clock or a weight, `loss: wasserstein`",
        )
    elif others:
        label = f"'{name}' is a {others[0]}: did you mean `{others[0]}: {name}`?"
    elif dot and is_path(f"{module}:{function}"):
        label = f"did you mean '{module}:{function}'?"
    return scope.report("GS110", f"no {family} is named '{name}'", path, label=label, help=help)


def check_outputs(scope: RuleContext) -> Iterator[Diagnostic]:
    """Compare the outputs of every op with its results, where their number is known."""
    for name, op in scope.sound_ops():
        names = found = len(op.defines(name))
        match op:
            case ForwardOp():
                found = sum(output.tap is None for output in op.outputs) if op.outputs else 1
                if scope.kind_of(op.forward) not in ("layers", "parameter"):
                    continue
                expected = min(1, found)
            case CallOp() if op.call.is_builtin:
                known, option = CALLS.get(op.call.name("torch")), COUNTED.get(op.call.name("torch"))
                results = 1 if known is None else known.results
                sections = results if option is None else op.args.get(option)
                expected = len(sections) if isinstance(sections, list) else sections
                if isinstance(expected, bool) or not isinstance(expected, int):
                    continue  # not a number of parts: reported as an option
            case GradientOp() if scope.broken.isdisjoint(op.wrt) and all(each in scope.entries for each in op.wrt):
                models, values = op.split({*scope.spec.models, *find_derived(scope.spec)})
                expected = bool(models) + len(values)
            case _:
                continue
        if expected != found:
            results = f"op '{name}' has {count(expected, 'result')}"
            is_written = "outputs" in op.model_fields_set
            message = f"{results} and {count(names, 'name')} for them" if is_written else f"{results}, which need names"
            help = f"write `outputs:` with {count(expected, 'name')}" if expected > 1 else "leave `outputs` out"
            yield scope.report("GS116", message, ("ops", name, "outputs"), key=True, help=help)


def check_models(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check the calls of models that are not classes: how many inputs they take, and that they have no methods."""
    for name, op in scope.sound_ops():
        kind = scope.kind_of(op.forward) if isinstance(op, ForwardOp) else None
        if not isinstance(op, ForwardOp) or kind not in ("layers", "parameter"):
            continue
        expected = 1 if kind == "layers" else 0
        if len(op.inputs) != expected or op.inputs.keyword:
            by_position = " by position" if op.inputs.keyword else ""
            found = "a mapping" if op.inputs.keyword else len(op.inputs)
            message = f"model '{op.forward}' ({kind}) takes {count(expected, 'input')}{by_position}, found {found}"
            help = "join them with `call: concat`" if len(op.inputs) > 1 else "write `inputs: x`, one reference"
            if not expected:
                help = "leave out `inputs`: `forward` returns the parameter itself"
            yield scope.report("GS111", message, ("ops", name, "inputs"), key=not op.inputs, help=help)
        if op.method is not None:
            message = f"model '{op.forward}' ({kind}) has no methods"
            yield scope.report("GS056", message, ("ops", name, "method"), help="`method` needs a model with a `class`")
        layers = scope.origins[op.forward].layers or ()
        for index, tap in enumerate(output.tap for output in op.outputs or ()):
            if tap is not None and not _has_layer(layers, tap):
                message = f"model '{op.forward}' has no layer '{tap}'"
                known = f"it has {count(len(layers), 'layer')}, from 0 on" if layers else "it has none"
                help = f"{known}; one inside of another has both indices, as in `tap: '1.0'`"
                yield scope.report("GS115", message, ("ops", name, "outputs", index), help=help)


def _has_layer(layers: Sequence[Layer], path: str) -> bool:
    """Return whether there is a layer at a path of indices, those of inner layers after a dot.

    >>> layers = [Layer.model_validate(each) for each in ("relu", {"residual": ["tanh"]})]
    >>> [_has_layer(layers, path) for path in ("0", "1.0", "2", "0.0", "-1", "relu")]
    [True, True, False, False, False, False]
    """
    first, _, rest = path.partition(".")
    found = next((layer for index, layer in enumerate(layers) if str(index) == first), None)
    return found is not None and ("." not in path or _has_layer(found.layers, rest))


def check_dimensions(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse a named size that no input gives; inputs without a shape may give the batch."""
    inputs = scope.spec.inputs.values()
    known = dict.fromkeys(size for spec in inputs for size in spec.shape or () if isinstance(size, str))
    if any(spec.shape is None for spec in inputs) or scope.blind:
        known["batch"] = None
    for name, op in scope.sound_ops():
        sizes = op.shape if isinstance(op, RandomOp) else None
        for index, size in enumerate(sizes or ()):
            if isinstance(size, str) and size not in known:
                message = f"`shape` of op '{name}' uses the size '{size}', which no input has"
                help = f"free sizes of the inputs: {', '.join(known)}" if known else "no input has a free size"
                path, label = ("ops", name, "shape", index), did_you_mean(size, known)
                yield scope.report("GS121", message, path, label=label, help=help)
        if isinstance(op, RandomOp) and op.random == "permutation" and sizes is not None and len(sizes) != 1:
            message = f"a permutation has one size, found {len(sizes)}"
            yield scope.report("GS121", message, ("ops", name, "shape"), help="write `shape: [batch]`")
