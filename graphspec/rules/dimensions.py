"""Rules on sizes: a free dimension that a random op uses is one that an input gives."""

from __future__ import annotations

from collections.abc import Iterator

from graphspec.diagnostics import Diagnostic
from graphspec.ops import RandomOp
from graphspec.scope import Scope
from graphspec.suggestions import closest


def check_dimensions(scope: Scope) -> Iterator[Diagnostic]:
    """Refuse a named size that no input gives; inputs without a shape may give the batch."""
    inputs = scope.spec.inputs.values()
    known = dict.fromkeys(size for spec in inputs for size in spec.shape or () if isinstance(size, str))
    if any(spec.shape is None for spec in inputs) or scope.blind:
        known["batch"] = None
    for name, op in scope.sound_ops():
        if isinstance(op, RandomOp):
            yield from _check_shape(scope, name, op, tuple(known))


def _check_shape(scope: Scope, name: str, op: RandomOp, known: tuple[str, ...]) -> Iterator[Diagnostic]:
    for index, size in enumerate(op.shape or ()):
        if isinstance(size, str) and size not in known:
            near = closest(size, known, 1)
            message = f"`shape` of op '{name}' uses the size '{size}', which no input has"
            help = f"free sizes of the inputs: {', '.join(known)}" if known else "no input has a free size"
            label = f"did you mean '{near[0]}'?" if near else ""
            yield scope.report("GS121", message, ("ops", name, "shape", index), label=label, help=help)
    if op.random == "permutation" and op.shape is not None and len(op.shape) != 1:
        message = f"a permutation has one size, found {len(op.shape)}"
        yield scope.report("GS121", message, ("ops", name, "shape"), help="write `shape: [batch]`")
