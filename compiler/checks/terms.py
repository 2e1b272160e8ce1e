"""Checks of groups, constraints and regularizers: what the backend lacks, and models that nothing updates."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ops.verdict import find_judged
from compiler.optimizers import find_optimizers
from graphspec.diagnostics import Diagnostic
from graphspec.functions import FunctionName
from graphspec.graph import GraphSpec
from graphspec.ops import UpdateOp
from graphspec.source import Path

FIELDS = ("groups", "constraint", "regularizer")


def check_terms(spec: GraphSpec, backend: str) -> Iterator[Diagnostic]:
    """Yield E-BACKEND for functions without a path for the backend, and for groups that its optimizers cannot have."""
    for path, function in _find_functions(spec):
        if function.find(backend) is None:
            section, name, field = path
            message = f"the {field} of {str(section)[:-1]} '{name}' has no function for the backend '{backend}'"
            help = f"add `{backend}: pkg.mod:fn`, or choose another backend"
            yield Diagnostic(code="E-BACKEND", message=message, span=spec.span(*path), help=help)
    if backend == "tensorflow":
        yield from _check_groups(spec)


def _find_functions(spec: GraphSpec) -> Iterator[tuple[Path, FunctionName]]:
    """Yield the users' functions of constraints and regularizers, with their places."""
    for name, model in spec.models.items():
        for each in model.constraint or ():
            yield from ((("models", name, "constraint"), each.function),) if each.function is not None else ()
        for term in model.regularizer or ():
            yield from ((("models", name, "regularizer"), term.function),) if term.function is not None else ()
    for name, op in spec.ops.items():
        for each in (op.constraint or ()) if isinstance(op, UpdateOp) else ():
            yield from ((("ops", name, "constraint"), each.function),) if each.function is not None else ()


def _check_groups(spec: GraphSpec) -> Iterator[Diagnostic]:
    """Yield a problem where a class of Keras would have to step parameters in groups: it has one rate for all."""
    cells = (cell for cell in find_optimizers(spec) if cell.optimizer.class_ is not None)
    for model in dict.fromkeys(model for cell in cells for model in cell.models):
        for index, group in enumerate(spec.models[model].groups):
            is_early = group.until is not None and group.lr_scale is None and group.weight_decay is None
            windows = [op for op in spec.ops.values() if isinstance(op, UpdateOp) and model in op.update]
            if is_early and any(op.window > 1 for op in windows):
                message = f"an optimizer of Keras steps '{model}': it cannot leave out what thaws within a window"
                yield Diagnostic(
                    code="E-BACKEND",
                    message=message,
                    span=spec.span("models", model, "groups", index, "frozen"),
                    help="use an optimizer by `name`, or choose another backend",
                )
            elif not (group.is_frozen or is_early):
                message = f"an optimizer of Keras steps '{model}': it has one rate and one decay for all parameters"
                span = spec.span("models", model, "groups", index)
                help = "use an optimizer by `name`, take the group away, or choose another backend"
                yield Diagnostic(code="E-BACKEND", message=message, span=span, help=help)


def find_idle(spec: GraphSpec) -> Iterator[str]:
    """Yield a sentence for every field without effect: of how models are stepped that none steps, and of windows."""
    updated = {model for op in spec.ops.values() if isinstance(op, UpdateOp) for model in op.update}
    for name, model in spec.models.items():
        written = [f"`{field}`" for field in FIELDS if field in model.model_fields_set]
        if written and name not in updated:
            yield f"no update steps model '{name}', which makes {' and '.join(written)} of no effect"
    judged = find_judged(spec)
    updates = ((name, op) for name, op in spec.ops.items() if isinstance(op, UpdateOp) and name not in judged)
    for name, op in updates:
        if op.accumulate is not None and op.accumulate.on_nonfinite != "drop":  # the default says nothing
            yield f"nothing looks at the gradients of '{name}' (`on_overflow`): `on_nonfinite` is of no effect"
