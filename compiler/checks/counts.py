"""Checks of what is counted over windows and micro-batches: E-COUNTS, and E-MICRO where a count comes too late."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.checks.context import Scene
from compiler.counting import find_own, find_plain
from compiler.diagnose import span_of
from compiler.gathering import find_gathering, is_total
from compiler.observations import Observations
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec


def check_counts(scene: Scene) -> Iterator[Diagnostic]:
    """Yield E-COUNTS for an update that gathers sums and means, which are combined over steps in different ways."""
    for update, terms in find_gathering(scene.spec).items():
        totals = [term for term in terms if is_total(scene.spec.ops.get(term))]
        means = [term for term in terms if term not in totals]
        if totals and means:
            yield Diagnostic(
                code="E-COUNTS",
                message=f"'{update}' gathers '{totals[0]}', a sum, and '{means[0]}', a mean: they count differently",
                span=span_of(scene.spec, update, "accumulate"),
                label="over several steps, sums are added up and means are not",
                help="give the terms the same `reduction`, or let every step count alike: `{steps: 4, reduce: steps}`",
            )


def check_split_counts(spec: GraphSpec, observed: Observations) -> Iterator[Diagnostic]:
    """Yield E-MICRO for a loss with a count of its own of which micro-batches take a gradient by a value."""
    own = find_own(spec, observed.counts)
    for name in dict.fromkeys(find_plain(spec, "train")):
        if own.get(name) in ("kept", "returned"):
            yield Diagnostic(
                code="E-MICRO",
                message=f"the gradient of '{name}' by a value is divided by what the whole batch counts, "
                "of which a micro-batch knows its own part only",
                span=span_of(spec, name),
                label="brings a count of its own",
                help="take the gradient of a loss that counts rows, or take `micro_batches` away",
            )
