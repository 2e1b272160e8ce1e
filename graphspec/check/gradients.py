"""Rules on gradients: losses are losses, gradient sets stand where sets are wanted, and cover what they step."""

from __future__ import annotations

from collections.abc import Iterator

from graphspec.analysis.scope import Entry, RuleContext
from graphspec.declare.library import ON_GRADIENTS
from graphspec.declare.ops import CallOp, GradientOp, LossOp, Op, Reference, TransformOp, UpdateOp
from graphspec.diagnostics import Diagnostic
from graphspec.words import enumerate_names


def check_losses(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse to differentiate what is no loss: a forward's result, an input, a metric."""
    for name, op in scope.sound_ops():
        for reference in op.operands():
            entry = _find_value(scope, reference) if reference.role == "loss" else None
            if entry is None or (isinstance(op, GradientOp) and op.grad_outputs):
                continue
            maker = scope.spec.ops.get(entry.op or "")
            if reference.name not in scope.sets and not isinstance(maker, LossOp | CallOp):
                what = entry.title if maker is None else f"the value of a `{maker.kind}` op"
                message = f"`{reference.path[0]}` of op '{name}' must name the value of a loss or a call, found {what}"
                if isinstance(op, GradientOp):
                    total = f"total: {{call: sum, inputs: {reference.name}}}"
                    help = f"sum it first, as in `{total}`, or give `grad_outputs`"
                else:
                    mean = f"error: {{call: mean, inputs: {reference.name}}}"
                    help = f"reduce it to a number with a loss or a call, as in `{mean}`"
                yield scope.report("GS118", message, ("ops", name, *reference.path), help=help)


def check_sets(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse tensors where gradient sets are wanted, and gradient sets where tensors are."""
    for name, op in scope.sound_ops():
        for reference in op.operands():
            wanted, is_set = reference.role == "gradients", reference.name in scope.sets
            entry = _find_value(scope, reference)
            if entry is None or wanted == is_set or (is_set and _takes_sets(op)):
                continue
            field = f"`{reference.path[0]}` of op '{name}'"
            message = f"{field} must name a tensor, found '{reference.name}', a gradient set"
            help = f"gradient sets go into `transform`, `update`, and the calls {enumerate_names(ON_GRADIENTS)}"
            if wanted:
                message = f"{field} must name a gradient set, found '{reference.name}', {entry.title}"
                help = "a gradient set is the value of a `gradient` op with respect to models, or of a `transform`"
            yield scope.report("GS117", message, ("ops", name, *reference.path), help=help)
        if isinstance(op, CallOp) and name in scope.sets and op.call.name("torch") in ("add", "sub"):
            for index, operand in enumerate(op.inputs.positional):
                if not isinstance(operand, str):  # sets have factors, but no constant terms
                    message = f"`inputs` of op '{name}' must name gradient sets, found the number {operand}"
                    help = "a number can only multiply gradients: `call: mul`"
                    yield scope.report("GS117", message, ("ops", name, "inputs", index), help=help)
    for index, name in enumerate(scope.spec.outputs or ()):
        if name in scope.sets:
            message = f"`outputs` must name tensors, found '{name}', a gradient set"
            yield scope.report("GS117", message, ("outputs", index), help="return its loss instead")


def check_reductions(scope: RuleContext) -> Iterator[Diagnostic]:
    """Refuse an update that says how its gradients combine over processes, where none are declared."""
    for name, op in scope.sound_ops() if scope.spec.parallel is None else ():
        if isinstance(op, UpdateOp) and op.reduce is not None:
            message = f"`reduce` of update '{name}' goes with `parallel`: there are no processes to combine"
            help = "remove it, or add `parallel: {kind: replicated}`; steps are added up by `accumulate: {reduce: sum}`"
            yield scope.report("GS056", message, ("ops", name, "reduce"), key=True, help=help)


def _takes_sets(op: Op) -> bool:
    return isinstance(op, CallOp) and (not op.call.is_builtin or op.call.name("torch") in ON_GRADIENTS)


def _find_value(scope: RuleContext, reference: Reference) -> Entry | None:
    """Return the declaration of a reference where it names a value, as the rules on references demand."""
    entry = scope.find(reference.name)
    wrong = reference.name in scope.broken or reference.role not in ("value", "loss", "gradients")
    if entry is None or wrong or frozenset(entry.facets).isdisjoint(("value", "input")):
        return None
    return entry


def check_coverage(scope: RuleContext) -> Iterator[Diagnostic]:
    """Check that the gradients of an update cover each of its models once, and that joined sets agree."""
    for name, op in scope.sound_ops():
        joined: tuple[str, ...] = ()
        match op:
            case UpdateOp(gradients=tuple() as gradients) if all(given in scope.sets for given in gradients):
                for index, model in enumerate(op.update):
                    covering = [given for given in gradients if model in scope.sets[given]]
                    if len(covering) == 1 or model in scope.broken:
                        continue
                    several = f"{enumerate_names(covering)} all cover it"
                    found = several if covering else "no set in its `gradients` covers it"
                    message = f"op '{name}' updates model '{model}', but {found}"
                    help = "add the sets with `call: add`" if covering else f"take the gradient with `wrt: {model}`"
                    yield scope.report("GS122", message, ("ops", name, "update", index), help=help)
            case TransformOp():
                joined = op.inputs
            case CallOp() if _takes_sets(op):
                joined = tuple(given for _, given in op.inputs.references())
            case _:
                pass
        first, *others = [scope.sets[given] for given in joined if given in scope.sets] or [()]
        other = next((each for each in others if each != first), None)
        if other is not None:
            both = f"gradients of {enumerate_names(first)} with gradients of {enumerate_names(other)}"
            help = "take both with the same `wrt`"
            yield scope.report("GS122", f"op '{name}' combines {both}", ("ops", name, "inputs"), help=help)
