"""Checks of what is counted over windows and micro-batches: E-COUNTS, and counts that cannot be kept yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from compiler.checks.context import Scene
from compiler.counting import find_own, find_plain
from compiler.diagnose import span_of
from compiler.gathering import find_gathering, is_total
from compiler.operands import Shape
from compiler.shapes import format_shape
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from graphspec.modes import find_reaches


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


def check_kept_counts(scene: Scene) -> Iterator[Diagnostic]:
    """Yield GS045 for a loss that leaves elements out, in windows or micro-batches that cannot count the others."""
    kept = (name for name, counted in find_own(scene.spec, {}).items() if counted == "kept")
    yield from _refuse(scene.spec, kept, "leaves elements out (`ignore_index`)", "args")


def check_uneven(
    spec: GraphSpec, elements: Mapping[str, Shape | None], uneven: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield GS045 for a mean of another number of elements in every step, where these cannot be counted.

    Where the number is not known rows count, as for the losses of users.
    """
    known = {name: format_shape(elements[name]) for name in elements if name in uneven and elements[name] is not None}
    for name, shape in known.items():
        yield from _refuse(spec, [name], f"is the mean of {shape}, which rows do not count,", "inputs")


def _refuse(spec: GraphSpec, losses: Iterable[str], what: str, field: str) -> Iterator[Diagnostic]:
    """Yield GS045 for those of some losses whose counts cannot be kept."""
    plain = frozenset(find_plain(spec, "train", find_reaches(spec.ops)))
    for name in losses:
        if name in plain:
            yield Diagnostic(
                code="GS045",
                message=f"'{name}' {what} beside terms that are absent from some steps, "
                "inside another op, or under a gradient by values: over several steps or micro-batches this is part of "
                "the language but not built yet",
                span=span_of(spec, name, field),
                help="run all terms in every step, or let every step count alike: `{steps: 4, reduce: steps}`",
            )
