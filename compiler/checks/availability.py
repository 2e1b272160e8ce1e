"""Check of what a backend has: classes and functions that the spec names for another backend only."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.diagnose import span_of
from graphspec.diagnostics import Diagnostic, Span
from graphspec.functions import FunctionName
from graphspec.graph import GraphSpec
from graphspec.ops import CallOp, LossOp, MetricOp, Op, TransformOp


def check_backend(spec: GraphSpec, backend: str) -> Iterator[Diagnostic]:
    """Yield E-BACKEND for every class or function that has no path for the backend."""
    for name, model in spec.models.items():
        if model.class_ is not None and model.class_path(backend) is None:
            yield _missing(f"model '{name}'", "class", backend, spec.span("models", name, "class"))
    for name, op in spec.ops.items():
        function = _function(op)
        if function is not None and function.find(backend) is None:
            yield _missing(f"op '{name}'", "function", backend, span_of(spec, name))


def _missing(subject: str, what: str, backend: str, span: Span | None) -> Diagnostic:
    """Return the diagnostic of a name that is given for other backends only."""
    return Diagnostic(
        code="E-BACKEND",
        message=f"{subject} has no {what} for the backend '{backend}'",
        span=span,
        label=f"nothing for {backend} here",
        help=f"add `{backend}: pkg.mod:Name`, or choose another backend",
    )


def _function(op: Op) -> FunctionName | None:
    """Return the function an op names, if it names one."""
    match op:
        case CallOp():
            return op.call
        case LossOp():
            return op.loss
        case MetricOp():
            return op.metric
        case TransformOp():
            return op.transform
        case _:
            return None
