"""Checks of replicas: E-REPLICAS."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.program import Program
from graphspec.analysis.modes import find_reaches
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import AdaptOp
from graphspec.diagnostics import Diagnostic


def check_replicas(spec: GraphSpec, backend: str) -> Iterator[Diagnostic]:
    """Yield E-REPLICAS for what several processes cannot do together."""
    if not spec.is_replicated:
        return
    if backend != "torch":
        yield Diagnostic(
            code="E-REPLICAS",
            message=f"replicas are not built for the backend '{backend}'",
            span=spec.span("parallel"),
            label="runs on PyTorch only",
            help="choose the backend 'torch', or remove `parallel`",
        )
    for name, op in spec.ops.items():
        if isinstance(op, AdaptOp) and find_reaches(spec)[name].modes - {"infer"}:
            yield Diagnostic(
                code="E-REPLICAS",
                message=f"'{name}' adapts '{op.adapt}' by a gradient of the whole batch, of which a replica has a part",
                span=spec.span("ops", name, key=True),
                label="needs all rows",
                help="remove `parallel`",
            )


def check_reduced_tables(spec: GraphSpec, program: Program) -> Iterator[Diagnostic]:
    """Yield E-REPLICAS for tables whose gradients are rows: every replica has others, which are not added up."""
    for model in program.models if spec.is_replicated else ():
        if model.has_rows:
            yield Diagnostic(
                code="E-REPLICAS",
                message=f"a table of '{model.name}' has sparse gradients, and replicas add up whole gradients",
                span=spec.span("models", model.name, key=True),
                label="its gradients are rows",
                help="remove `sparse` from the embedding, or remove `parallel`",
            )
