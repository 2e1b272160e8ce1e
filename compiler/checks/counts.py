"""Checks of windows: E-COUNTS."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.checks.context import Scene
from compiler.diagnose import span_of
from compiler.gathering import find_gathering, is_total
from graphspec.diagnostics import Diagnostic


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
