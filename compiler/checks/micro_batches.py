"""Checks of micro-batches: E-MICRO, W-COUPLED."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.checks.context import Scene
from compiler.diagnose import span_of
from compiler.parts.calls import BATCH
from graphspec.diagnostics import Diagnostic
from graphspec.ops import RandomOp


def check_batch(scene: Scene) -> Iterator[Diagnostic]:
    """Yield E-MICRO where there is nothing to split, and for what cannot be: an order of the whole batch."""
    spec = scene.spec
    if all(declared.shape is not None and BATCH not in declared.shape for declared in spec.inputs.values()):
        yield Diagnostic(
            code="E-MICRO",
            message="no input has a dimension named `batch`, so there is nothing to split into micro-batches",
            span=spec.span("micro_batches"),
            label="splits the dimension named `batch`",
            help="declare it, as in `x: {shape: [batch, 4]}`, or take `micro_batches` away",
        )
    for name, op in spec.ops.items():
        if isinstance(op, RandomOp) and op.random == "permutation" and name in scene.nodes and _is_batched(op):
            yield Diagnostic(
                code="E-MICRO",
                message=f"'{name}' orders the whole batch, of which a micro-batch has some rows only",
                span=span_of(spec, name),
                label="its numbers are places in the whole batch",
                help="mix samples where batches are made and give the result as an input, or take `micro_batches` away",
            )


def _is_batched(op: RandomOp) -> bool:
    """Return whether a draw is as long as the batch, or like a value, which may be."""
    return op.like is not None or BATCH in (op.shape or ())


def check_coupled(scene: Scene, coupled: Mapping[str, str]) -> Iterator[Diagnostic]:
    """Yield W-COUPLED for every op whose micro-batches are not together what it is on the whole batch."""
    for name, why in coupled.items():
        op = scene.everything[name].op
        if name in scene.nodes:
            yield Diagnostic(
                code="W-COUPLED",
                severity="warning",
                message=f"'{op}' sees one micro-batch at a time: {why}",
                span=span_of(scene.spec, op),
                label="couples the samples of a batch",
                help="take `micro_batches` away, or accept that the numbers depend on it",
            )
