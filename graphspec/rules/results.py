"""Rules on what ops define: as many outputs as there are results."""

from __future__ import annotations

from collections.abc import Iterator

from graphspec.diagnostics import Diagnostic
from graphspec.ops import CallOp, ForwardOp, GradientOp, Op
from graphspec.scope import Scope
from graphspec.wording import count


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
