"""Checks of averages that stand in for their models in evaluation: E-SWAP."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.checks.context import Scene
from compiler.diagnose import span_of
from compiler.swaps import Swap, find_all_swaps
from graphspec.diagnostics import Diagnostic
from graphspec.ops import MODES, UpdateOp


def check_swaps(scene: Scene) -> Iterator[Diagnostic]:
    """Yield E-SWAP where two averages stand in for one model, or a model is written while one stands in for it."""
    owners: dict[str, str] = {}
    for swap in find_all_swaps(scene.spec):
        first = owners.setdefault(swap.model, swap.op)
        if first != swap.op:
            yield Diagnostic(
                code="E-SWAP",
                message=f"'{first}' and '{swap.op}' both stand in for '{swap.model}' in evaluation",
                span=span_of(scene.spec, swap.op, "use"),
                label="only one average can",
                help=f"take `use` away from one of them, and call its average by name: `forward: {swap.target}`",
            )
        yield from _find_updates(scene, swap)


def _find_updates(scene: Scene, swap: Swap) -> Iterator[Diagnostic]:
    """Yield a problem for every update of a model in a mode in which an average stands in for it."""
    for name, op in scene.spec.ops.items():
        runs = isinstance(op, UpdateOp) and any(op.runs_in(mode) for mode in MODES if mode != "train")
        if isinstance(op, UpdateOp) and runs and swap.model in op.update:
            yield Diagnostic(
                code="E-SWAP",
                message=f"'{name}' updates '{swap.model}' in a mode in which '{swap.op}' stands in for it",
                span=span_of(scene.spec, name, "mode"),
                label="the forwards of that mode are those of the average",
                help=f"update it in train mode only, or take `use` away from '{swap.op}'",
            )
